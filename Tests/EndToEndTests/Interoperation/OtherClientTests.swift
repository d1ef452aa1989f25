import Foundation
import TestSupport
import Testing

extension EndToEnd {
    /// Third-party clients send to the simulator. The simulator's own tests use curl, nghttp and h2load.
    @Suite("Third-party clients with the simulator")
    struct OtherClientTests {
        private struct Report: Decodable {
            /// The number of each answer, such as `200`.
            let answers: [String: Int]
            /// The answer to each mistake.
            let mistakes: [String: String]
        }

        /// Runs a client that sends notifications to distinct devices, and expects all to be accepted.
        private func report(_ command: [String], count: Int) async throws -> Report {
            let simulator = try await SimulatorProcess()
            let client = try ChildProcess(
                command[0],
                command.dropFirst() + [
                    "--port", "\(simulator.port)", "--authority", try TestCertificates.path("ca.pem"),
                    "--key", try TestCertificates.path("AuthKey_ABC123DEFG.p8"), "--count", "\(count)",
                ])
            guard try await client.wait() == .exited(0) else { throw client.failure("failed") }
            let report = try JSONDecoder().decode(Report.self, from: Data(client.output.utf8))
            let account = try await simulator.stop()
            #expect(report.answers == ["200": count])
            #expect(account.accepted == count && account.distinctTokens == count)
            // A client may reset a stream whose answer arrived before its body was sent.
            #expect(account.protocolErrors == 0)
            return report
        }

        @Test("Go's client sends 2,000 requests over 100 streams, and its mistakes are answered")
        func go() async throws {
            let report = try await report([ForeignProgram.go(), "push"], count: 2000)
            #expect(
                report.mistakes == [
                    "no token": "400 MissingDeviceToken", "no topic": "400 MissingTopic",
                    "no payload": "400 PayloadEmpty", "large payload": "413 PayloadTooLarge",
                    "priority 7": "400 BadPriority", "unknown type": "400 InvalidPushType",
                ])
        }

        @Test(
            "aioapns sends 300 requests over two connections, and its mistakes are answered",
            .enabled("PyPI cannot be reached") { try await ForeignProgram.aioapns("aioapns_client.py") != nil })
        func aioapns() async throws {
            let command = try #require(try await ForeignProgram.aioapns("aioapns_client.py"))
            let report = try await report(command, count: 300)
            #expect(
                report.mistakes == [
                    "token of letters": "400 BadDeviceToken", "large payload": "413 PayloadTooLarge",
                    "long collapse id": "400 BadCollapseId", "VoIP": "400 BadTopic",
                ])
        }
    }
}
