import Foundation
import TestSupport
import Testing

@testable import APNSSimulator

@Suite("The control port of a simulator with a gateway", .timeLimit(.minutes(2)))
struct GatewayControlTests {
    private typealias Ask = (String, String, String?) async throws -> ControlRequest

    private func withControl(
        _ rules: [String] = [], _ change: @escaping (inout SimulatorConfiguration) throws -> Void = { _ in },
        _ body: (APNSSimulatorServer, Ask) async throws -> Void
    ) async throws {
        try await withGateway(rules) {
            $0.controlPort = 0
            try change(&$0)
        } _: { server in
            try await body(server) { try await ControlRequest($0, $1, $2, port: server.controlPort) }
        }
    }

    /// Returns the bytes that a client receives for one notification until the connection ends.
    private func packet(_ server: APNSSimulatorServer, token: UInt8 = 0xDD) async throws -> [UInt8] {
        let client = try await BinaryClient.connect(server.gatewayPort)
        try await client.send(GatewayBytes.frame(1, token: GatewayBytes.token(token)))
        return try await client.ending().bytes
    }

    private func records(_ answer: ControlRequest) throws -> [[String: Any]] {
        try #require(try answer.json["records"] as? [[String: Any]])
    }

    @Test("changes the gateway's rules: replaces all, adds one, deletes all")
    func rules() async throws {
        try await withControl(["prefix=dd, answer=8,times=1"]) { server, ask in
            func rules(_ answer: ControlRequest) throws -> [String]? { try answer.json["rules"] as? [String] }
            #expect(try rules(try await ask("GET", "/gateway-rules", nil)) == ["prefix=dd,answer=8,times=1"])
            #expect(try await packet(server) == GatewayBytes.packet(8, 1))
            let added = try await ask("POST", "/gateway-rules", #"{"rule":"prefix=dd,answer=1"}"#)
            #expect(try rules(added) == ["prefix=dd,answer=8,times=1", "prefix=dd,answer=1"])
            // The first rule's count continues, so it no longer matches.
            #expect(try await packet(server) == GatewayBytes.packet(1, 1))
            let replaced = try await ask("PUT", "/gateway-rules", #"{"rules":["at=connect,answer=close,times=1"]}"#)
            #expect(try rules(replaced) == ["at=connect,answer=close,times=1"])
            let closed = try await BinaryClient.connect(server.gatewayPort).ending()
            #expect(closed.bytes.isEmpty && closed.isClean)
            let bad = try await ask("PUT", "/gateway-rules", #"{"rules":["answer=8","answer=maybe"]}"#)
            #expect(bad.status == 400)
            #expect(try bad.error?.contains("'answer=maybe': answer: must be a status from 0 to 255") == true)
            let late = try await ask("POST", "/gateway-rules", #"{"rule":"at=connect,answer=close,times=1"}"#)
            #expect(late.status == 200)
            #expect(try await BinaryClient.connect(server.gatewayPort).ending().bytes.isEmpty)
            #expect(try rules(try await ask("DELETE", "/gateway-rules", nil)) == [])
            let client = try await BinaryClient.connect(server.gatewayPort)
            try await client.send(GatewayBytes.frame(1, token: GatewayBytes.token(0xDD)))
            try await eventually("it is accepted") { server.account.acceptedByGateway == 1 }
            try await client.close()
            // The rules of HTTP/2 are separate.
            #expect(try rules(try await ask("GET", "/rules", nil)) == [])
        }
    }

    @Test("returns what the gateway received, also to a long poll")
    func notifications() async throws {
        try await withControl { server, ask in
            let client = try await BinaryClient.connect(server.gatewayPort)
            let port = server.controlPort
            let poll = Task { try await ControlRequest("GET", "/notifications?wait=100", port: port) }
            try await client.send(GatewayBytes.frame(7, token: GatewayBytes.token(0xDD)))
            let answer = try await poll.value
            let notification = try #require((try answer.json["notifications"] as? [[String: Any]])?.first)
            #expect(notification["transport"] as? String == "gateway" && notification["identifier"] as? Int == 7)
            #expect((notification["outcome"] as? [String: Any])?["status"] as? Int == 0)
            // The account counts a notification before a long poll returns it.
            #expect(try await ask("GET", "/account", nil).json["accepted_by_gateway"] as? Int == 1)
            try await client.close()
        }
    }

    @Test("adds records to the feedback service, lists them, and clears them")
    func feedback() async throws {
        try await withControl { server, ask in
            let (first, second) = (String(repeating: "0A", count: 32), String(repeating: "bb", count: 32))
            #expect(try records(try await ask("GET", "/feedback", nil)).isEmpty)
            let body = #"{"records":[{"token":"\#(first)","seconds":1700000000},{"token":"\#(second)"}]}"#
            #expect(try await ask("POST", "/feedback", body).json["waiting"] as? Int == 2)
            let waiting = try records(try await ask("GET", "/feedback", nil))
            #expect(waiting.map { $0["token"] as? String } == [first.lowercased(), second])
            let seconds = waiting.compactMap { $0["seconds"] as? Int }
            #expect(seconds.first == 1_700_000_000)
            #expect(abs(Double(try #require(seconds.last)) - Date().timeIntervalSince1970) < 600)
            let served = try await BinaryClient.connect(server.feedbackPort).ending().bytes
            #expect(
                Array(served.prefix(38)) == GatewayBytes.big(UInt32(1_700_000_000)) + [0, 32] + GatewayBytes.token(0x0A)
            )
            #expect(served.count == 76)
            #expect(try records(try await ask("GET", "/feedback", nil)).isEmpty)
            _ = try await ask("POST", "/feedback", body)
            #expect(try await ask("DELETE", "/feedback", nil).json["deleted"] as? Int == 2)
            #expect(server.account.feedback.waiting == 0 && server.account.feedback.served == 2)
            #expect(try await BinaryClient.connect(server.feedbackPort).ending().bytes.isEmpty)
        }
    }

    @Test(
        "rejects feedback with an error as a whole, and does not repeat tokens",
        arguments: [
            (#"{"records":[{"token":"GOOD"},{"token":"5ec4e7"}]}"#, "records[1]: token must be"),
            (#"{"records":[{"token":"GOOD"},{"token":"GOOD","seconds":-1}]}"#, "records[1]: seconds must be"),
            (#"{"records":[{"token":"GOOD","seconds":4294967296}]}"#, "records[0]: seconds must be"),
            (#"{"records":[{"token":"GOOD","seconds":"now"}]}"#, "the body must be JSON such as"),
            (#"{"token":"GOOD"}"#, "the body must be JSON such as"),
        ])
    func badFeedback(_ body: String, _ words: String) async throws {
        try await withControl { _, ask in
            let body = body.replacingOccurrences(of: "GOOD", with: String(repeating: "a1", count: 32))
            let answer = try await ask("POST", "/feedback", body)
            #expect(answer.status == 400)
            #expect(try answer.error?.contains(words) == true, "\(answer.text)")
            #expect(!answer.text.contains("5ec4e7") && !answer.text.contains("a1a1"))
            #expect(try records(try await ask("GET", "/feedback", nil)).isEmpty)
        }
    }

    @Test("names the ports of the gateway and the feedback service, and their routes")
    func health() async throws {
        try await withControl { server, ask in
            let health = try await ask("GET", "/health", nil).json
            #expect(health["gateway_port"] as? Int == server.gatewayPort && server.gatewayPort != nil)
            #expect(health["feedback_port"] as? Int == server.feedbackPort && server.feedbackPort != nil)
            let routes = try #require(try await ask("GET", "/", nil).json["routes"] as? [String])
            #expect(routes.contains("DELETE /gateway-rules") && routes.contains("GET /feedback"))
        }
    }

    @Test("has no routes for servers that are not enabled")
    func without() async throws {
        try await withSimulator {
            $0.controlPort = 0
        } _: { server in
            for path in ["/gateway-rules", "/feedback"] {
                let answer = try await ControlRequest("GET", path, port: server.controlPort)
                #expect(answer.status == 404)
            }
            let health = try await ControlRequest("GET", "/health", port: server.controlPort).json
            #expect(health["gateway_port"] == nil && health["feedback_port"] == nil)
        }
    }

    @Test("closes connections to the gateway and the feedback service without a TLS alert")
    func drop() async throws {
        try await withControl {
            $0.feedbackRules = [try FeedbackRule("hang=true")]
        } _: { server, ask in
            let clients = [
                try await BinaryClient.connect(server.gatewayPort), try await BinaryClient.connect(server.feedbackPort),
            ]
            try await clients[0].send(GatewayBytes.frame(1))
            try await eventually("both are served") {
                let account = server.account
                return account.acceptedByGateway == 1 && account.feedback.connections == 1
            }
            #expect(try await ask("POST", "/faults/drop", nil).json["connections"] as? Int == 2)
            for client in clients {
                let ending = try await client.ending()
                #expect(ending.bytes.isEmpty && !ending.isClean)
            }
            #expect(server.account.gateway.closes == 1)
            // New connections are served.
            let client = try await BinaryClient.connect(server.gatewayPort)
            try await client.send(GatewayBytes.frame(2))
            try await eventually("it is accepted") { server.account.acceptedByGateway == 2 }
            try await client.close()
        }
    }

    @Test("shuts the gateway down with the packet that names the last accepted notification")
    func shutdown() async throws {
        try await withControl { server, ask in
            let client = try await BinaryClient.connect(server.gatewayPort)
            try await client.send(GatewayBytes.frame(41) + GatewayBytes.frame(42))
            try await eventually("both are accepted") { server.account.acceptedByGateway == 2 }
            #expect(try await ask("POST", "/faults/goaway", nil).status == 200)
            let ending = try await client.ending()
            #expect(ending.bytes == GatewayBytes.packet(10, 42) && ending.isClean)
        }
    }

    @Test("closes the gateway's port and the feedback service's for a while")
    func listening() async throws {
        try await withControl { server, ask in
            #expect(try await ask("POST", "/faults/stop-listening", nil).status == 200)
            for port in [server.gatewayPort, server.feedbackPort] {
                await #expect(throws: (any Error).self) { try await BinaryClient.connect(port) }
            }
            #expect(try await ask("POST", "/faults/start-listening", nil).status == 200)
            for port in [server.gatewayPort, server.feedbackPort] { try await BinaryClient.connect(port).close() }
        }
    }
}
