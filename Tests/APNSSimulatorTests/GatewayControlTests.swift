import Foundation
import TestSupport
import Testing

@testable import APNSSimulator

@Suite("The control port of a simulator with a gateway", .timeLimit(.minutes(10)))
struct GatewayControlTests {
    private func withControl(
        _ rules: [String] = [], _ change: (inout SimulatorConfiguration) throws -> Void = { _ in },
        _ body: (APNSSimulatorServer) async throws -> Void
    ) async throws {
        try await withGateway(rules) {
            $0.controlPort = 0
            try change(&$0)
        } _: {
            try await body($0)
        }
    }

    @Test("changes the gateway's rules, which are apart from those of HTTP/2")
    func rules() async throws {
        let closing = "at=connect,answer=close,times=1"
        try await withControl(["prefix=dd, answer=8,times=1"]) { server in
            #expect(try await server.ask("GET", "/gateway-rules").texts("rules") == ["prefix=dd,answer=8,times=1"])
            #expect(
                try await server.connect(sending: GatewayBytes.frame(1, to: 0xDD)).ending().bytes
                    == GatewayBytes.packet(8, 1))
            #expect(
                try await server.ask("PUT", "/gateway-rules", #"{"rules":["\#(closing)"]}"#).texts("rules") == [closing]
            )
            let closed = try await BinaryClient.connect(server.gatewayPort).ending()
            #expect(closed.bytes.isEmpty && closed.isClean)
            #expect(try await server.ask("DELETE", "/gateway-rules").texts("rules") == [])
            try await server.acceptsOne()
            #expect(try await server.ask("GET", "/rules").texts("rules") == [])
        }
    }

    @Test("returns what the gateway received, also to a long poll")
    func notifications() async throws {
        try await withControl { server in
            let client = try await BinaryClient.connect(server.gatewayPort)
            let poll = Task { try await server.ask("GET", "/notifications?wait=100") }
            try await client.send(GatewayBytes.frame(7, to: 0xDD))
            let notification = try #require(try await poll.value.objects("notifications").first)
            #expect(notification["transport"] as? String == "gateway" && notification["identifier"] as? Int == 7)
            #expect((notification["outcome"] as? [String: Any])?["status"] as? Int == 0)
            // The account already counts a notification when a long poll returns it.
            #expect(try await server.ask("GET", "/account").number("accepted_by_gateway") == 1)
            try await client.close()
        }
    }

    @Test("adds records to the feedback service, lists them, and clears them")
    func feedback() async throws {
        try await withControl { server in
            let (first, second) = (String(repeating: "0A", count: 32), String(repeating: "bb", count: 32))
            #expect(try await server.ask("GET", "/feedback").objects("records").isEmpty)
            let body = #"{"records":[{"token":"\#(first)","seconds":1700000000},{"token":"\#(second)"}]}"#
            #expect(try await server.ask("POST", "/feedback", body).number("waiting") == 2)
            let waiting = try await server.ask("GET", "/feedback").objects("records")
            #expect(waiting.map { $0["token"] as? String } == [first.lowercased(), second])
            let seconds = waiting.compactMap { $0["seconds"] as? Int }
            #expect(seconds.first == 1_700_000_000)
            #expect(abs(Double(try #require(seconds.last)) - Date().timeIntervalSince1970) < 600)
            let served = try await BinaryClient.connect(server.feedbackPort).ending().bytes
            #expect(served.count == 76 && Array(served.prefix(38)) == FeedbackTests.tuple(0x0A, 1_700_000_000))
            #expect(try await server.ask("GET", "/feedback").objects("records").isEmpty)
            _ = try await server.ask("POST", "/feedback", body)
            #expect(try await server.ask("DELETE", "/feedback").number("deleted") == 2)
            #expect(server.account.feedback.waiting == 0 && server.account.feedback.served == 2)
            #expect(try await BinaryClient.connect(server.feedbackPort).ending().bytes.isEmpty)
        }
    }

    @Test("rejects feedback with an error as a whole, and does not repeat tokens")
    func badFeedback() async throws {
        try await withControl { server in
            for (body, words) in [
                (
                    #"{"records":[{"token":"GOOD"},{"token":"5ec4e7"}]}"#,
                    "records[1]: token must be 64 to 200 hex digits"
                ),
                (#"{"records":[{"token":"GOOD"},{"token":"GOOD","seconds":-1}]}"#, "records[1]: seconds must be"),
                (#"{"records":[{"token":"GOOD","seconds":4294967296}]}"#, "records[0]: seconds must be"),
                (#"{"records":[{"token":"GOOD","seconds":"now"}]}"#, "the body must be JSON such as"),
                (#"{"token":"GOOD"}"#, "the body must be JSON such as"),
            ] {
                let good = String(repeating: "a1", count: 32)
                let answer = try await server.ask("POST", "/feedback", body.replacing("GOOD", with: good))
                #expect(answer.status == 400, "\(body)")
                #expect(try answer.error?.contains(words) == true, "\(answer.text)")
                #expect(!answer.text.contains("5ec4e7") && !answer.text.contains("a1a1"))
                #expect(try await server.ask("GET", "/feedback").objects("records").isEmpty, "\(body)")
            }
        }
    }

    @Test("names the ports of the gateway and the feedback service, and their routes, only if they are enabled")
    func health() async throws {
        try await withControl { server in
            let health = try await server.ask("GET", "/health")
            #expect(try health.number("gateway_port") == server.gatewayPort && server.gatewayPort != nil)
            #expect(try health.number("feedback_port") == server.feedbackPort && server.feedbackPort != nil)
            let routes = try #require(try await server.ask("GET", "/").texts("routes"))
            #expect(routes.contains("DELETE /gateway-rules") && routes.contains("GET /feedback"))
        }
        try await withSimulator(hasControlPort: true) { server in
            for path in ["/gateway-rules", "/feedback"] { #expect(try await server.ask("GET", path).status == 404) }
            let health = try await server.ask("GET", "/health").json
            #expect(health["gateway_port"] == nil && health["feedback_port"] == nil)
        }
    }

    @Test("closes connections to the gateway and the feedback service without a TLS alert")
    func drop() async throws {
        try await withControl {
            $0.feedbackRules = [try FeedbackRule("hang=true")]
        } _: { server in
            let clients = [
                try await BinaryClient.connect(server.gatewayPort), try await BinaryClient.connect(server.feedbackPort),
            ]
            try await clients[0].send(GatewayBytes.frame(1))
            try await eventually("both are served") {
                let account = server.account
                return account.gateway.accepted == 1 && account.feedback.connections == 1
            }
            #expect(try await server.ask("POST", "/faults/drop").number("connections") == 2)
            for client in clients {
                let ending = try await client.ending()
                #expect(ending.bytes.isEmpty && !ending.isClean)
            }
            #expect(server.account.gateway.closes == 1)
            // New connections are served.
            try await server.acceptsOne()
        }
    }

    @Test("closes the gateway's port and the feedback service's for a while")
    func listening() async throws {
        try await withControl { server in
            #expect(try await server.ask("POST", "/faults/stop-listening").status == 200)
            for port in [server.gatewayPort, server.feedbackPort] {
                await #expect(throws: (any Error).self) { try await BinaryClient.connect(port) }
            }
            #expect(try await server.ask("POST", "/faults/start-listening").status == 200)
            for port in [server.gatewayPort, server.feedbackPort] { try await BinaryClient.connect(port).close() }
        }
    }
}
