import TestSupport
import Testing

@testable import APNSSimulator

@Suite("The simulator's feedback service", .timeLimit(.minutes(10)))
struct FeedbackServerTests {
    private func drain(_ server: APNSSimulatorServer) async throws -> BinaryClient.Ending {
        try await BinaryClient.connect(server.feedbackPort).ending()
    }

    @Test("serves each record once, and closes")
    func once() async throws {
        try await withGateway {
            $0.feedback = (1...200).map { FeedbackTests.record($0) }
        } _: { server in
            #expect(server.account.feedback.waiting == 200)
            let first = try await drain(server)
            #expect(first.bytes == (1...200).flatMap { FeedbackTests.tuple($0) } && first.isClean)
            let second = try await drain(server)
            #expect(second.bytes.isEmpty && second.isClean)
            server.service.addFeedback([FeedbackTests.record(7, 8)])
            #expect(try await drain(server).bytes == FeedbackTests.tuple(7, 8))
            let account = server.account.feedback
            #expect(account.connections == 3 && account.served == 201 && account.waiting == 0)
        }
    }

    @Test("has the tokens that rules of both transports matched")
    func fedByRules() async throws {
        try await withGateway(["prefix=dd,answer=feedback"]) {
            $0.rules = [try FaultRule("prefix=0123,answer=410,timestamp=1700000000999")]
        } _: { server in
            let client = try await server.connect(sending: GatewayBytes.frame(1, to: 0xDD))
            try await eventually("it is accepted") { server.account.gateway.accepted == 1 }
            try await client.close()
            #expect(try await Push().send(to: server).status == 410)
            let bytes = try await drain(server).bytes
            #expect(bytes.count == 76 && Array(bytes.prefix(38).suffix(32)) == GatewayBytes.token(0xDD))
            let token = (0..<4).flatMap { _ in [0x01, 0x23, 0x45, 0x67, 0x89, 0xAB, 0xCD, 0xEF] as [UInt8] }
            #expect(Array(bytes.suffix(38)) == GatewayBytes.big(UInt32(1_700_000_000)) + [0, 32] + token)
        }
    }

    @Test("can be slow, send odd pieces and be cut off; unsent records are served next time")
    func faults() async throws {
        try await withGateway {
            $0.feedback = (1...5).map { FeedbackTests.record($0) }
            $0.feedbackRules = [try FeedbackRule("cut=50,slow=1ms,pieces=1..7,times=1")]
        } _: { server in
            let all = (1...5).flatMap { FeedbackTests.tuple($0) }
            let cut = try await drain(server)
            #expect(cut.bytes == Array(all.prefix(50)) && cut.isClean)
            #expect(try await drain(server).bytes == Array(all.suffix(3 * 38)))
        }
    }

    @Test("keeps the records that it cannot send to a client that does not read, and sends them to the next one")
    func backpressure() async throws {
        // These records fill Linux's largest send buffer more than three times.
        let count = 400_000
        try await withGateway {
            $0.feedback = (1...count).map { number in
                var token = SimulatedToken()
                token.words.3 = UInt64(number)
                return FeedbackRecord(token: token, seconds: 1)
            }
        } _: { server in
            let client = try await BinaryClient.connect(server.feedbackPort, reads: false)
            try await eventually("it is served") { server.account.feedback.served > 0 }
            // One event loop serves both clients. Once the second client has connected, the first client's socket buffers are full.
            try await BinaryClient.connect(server.gatewayPort).close()
            #expect(server.account.feedback.waiting > 0)
            try await client.drop()
            let ending = try await drain(server)
            let rest = ending.bytes
            #expect(rest.count >= 100_000 * 38 && rest.count % 38 == 0 && rest.count < count * 38 && ending.isClean)
            #expect(Array(rest.suffix(8)) == GatewayBytes.big(count))
            #expect(server.account.feedback.served == count && server.account.feedback.waiting == 0)
        }
    }
}
