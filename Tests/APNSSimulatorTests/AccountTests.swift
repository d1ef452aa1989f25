import APNSSimulator
import Foundation
import TestSupport
import Testing

@Suite("The account")
struct AccountTests {
    @Test("counts every token and apns-id, and those that arrived twice")
    func countsDuplicates() async throws {
        try await withSimulator { server in
            let other = "1C4D9F7A-0000-4000-8000-000000000001"
            _ = try await Push().send(to: server)
            _ = try await Push().send(to: server)
            _ = try await Push(token: FaultTests.dead) { $0.set("apns-id", other) }.send(to: server)
            let account = server.account
            #expect(account.accepted == 3)
            #expect(account.duplicates == 1)
            #expect(account.distinctIDs == 2)
            #expect(account.distinctTokens == 2)
            #expect(account.accepted(id: try #require(NotificationID(anyID.lowercased()))) == 2)
            #expect(account.accepted(id: try #require(NotificationID(other))) == 1)
            #expect(account.accepted(token: try #require(SimulatedToken(hex: anyToken.uppercased()))) == 2)
            let json = try JSONSerialization.jsonObject(with: Data(try account.json(details: true).utf8))
            let page = try #require(json as? [String: Any])
            #expect(page["accepted_by_token"] as? [String: Int] == [anyToken: 2, FaultTests.dead: 1])
            #expect(page["accepted_by_id"] as? [String: Int] == [anyID: 2, other: 1])
            #expect(try !account.json(details: false).contains(anyToken))
            let lines = String(decoding: account.tokenCounts(), as: UTF8.self).split(separator: "\n").sorted()
            #expect(lines == ["\(anyToken) 2", "\(FaultTests.dead) 1"].sorted())
        }
    }

    @Test("adds up over 50,000 requests of a foreign client", .timeLimit(.minutes(2)))
    func load() async throws {
        try await withSimulator {
            $0.initialStreams = 1000
        } _: { server in
            let report = try await h2load(server, requests: 50_000, streams: 200)
            #expect(report.output.contains("50000 succeeded, 0 failed, 0 errored, 0 timeout"))
            let account = server.account
            #expect(account.requests == 50_000)
            #expect(account.accepted == 50_000)
            #expect(account.answers == ["200": 50_000])
            #expect(account.distinctIDs == 50_000)
            #expect(account.accepted(token: try #require(SimulatedToken(hex: anyToken))) == 50_000)
            #expect(account.highestConcurrentStreams == 200)
            #expect(account.connections == 1)
            #expect(account.acceptedAnswerLost == 0)
        }
    }

    @Test("counts accepted notifications whose answer was lost when the client gave up")
    func lostAnswers() async throws {
        try await withSimulator {
            $0.delay = AnswerDelay("30s")
        } _: { server in
            let answer = try await Push { $0.arguments = ["--max-time", "0.5"] }.send(to: server)
            #expect(answer.exit == 28)
            // The server notices the disconnection asynchronously.
            let deadline = ContinuousClock.now + .seconds(10)
            while server.account.acceptedAnswerLost == 0, ContinuousClock.now < deadline { await Task.yield() }
            #expect(server.account.accepted == 1)
            #expect(server.account.acceptedAnswerLost == 1)
            #expect(server.account.answers.isEmpty)
        }
    }

    @Test("tolerates clients that do not speak HTTP/2")
    func hostile() async throws {
        try await withSimulator { server in
            let spoken = try await Command.run(
                "/usr/bin/curl",
                [
                    "--silent", "--http1.1", "--no-alpn", "--cacert", try TestCertificates.path("ca.pem"),
                    "https://127.0.0.1:\(server.port)/",
                ])
            #expect(spoken.status != 0)
            let garbage = try await Command.run(
                "/bin/sh",
                [
                    "-c",
                    """
                    printf 'GET / HTTP/1.1\r\n\r\n%64s' | openssl s_client -quiet -alpn h2                     -connect 127.0.0.1:\(server.port)
                    """,
                ], timeout: 10)
            #expect(!garbage.output.contains("HTTP/1.1"))
            let answer = try await Push().send(to: server)
            #expect(answer.status == 200)
            #expect(server.account.protocolErrors == 2)
            #expect(server.account.requests == 1)
        }
    }
}
