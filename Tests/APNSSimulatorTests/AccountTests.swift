import APNS
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
            for _ in 0..<2 { _ = try await Push().send(to: server) }
            _ = try await Push(token: FaultTests.dead) { $0.set("apns-id", other) }.send(to: server)
            let account = server.account
            #expect(account.accepted == 3 && account.duplicates == 1)
            #expect(account.distinctIDs == 2 && account.distinctTokens == 2)
            #expect(account.accepted(id: try #require(APNSID(anyID.lowercased().utf8))) == 2)
            #expect(account.accepted(id: try #require(APNSID(other.utf8))) == 1)
            #expect(account.accepted(token: try #require(SimulatedToken(hex: anyToken.uppercased()))) == 2)
            let page = try server.accountPage(details: true)
            #expect(page["accepted_by_token"] as? [String: Int] == [anyToken: 2, FaultTests.dead: 1])
            #expect(page["accepted_by_id"] as? [String: Int] == [anyID: 2, other: 1])
            #expect(try !account.json(details: false).contains(anyToken))
            let lines = String(decoding: account.tokenCounts(), as: UTF8.self).split(separator: "\n").sorted()
            #expect(lines == ["\(anyToken) 2", "\(FaultTests.dead) 1"].sorted())
            // Nothing is recorded by default.
            #expect(server.recorder == nil && server.controlPort == nil)
        }
    }

    @Test("adds up over 50,000 requests of a foreign client", .timeLimit(.minutes(10)))
    func load() async throws {
        try await withSimulator(streams: 1000) { server in
            let report = try await h2load(server, requests: 50_000, streams: 200)
            #expect(report.output.contains("50000 succeeded, 0 failed, 0 errored, 0 timeout"))
            let account = server.account
            #expect(account.requests == 50_000 && account.accepted == 50_000 && account.distinctIDs == 50_000)
            #expect(account.answers == ["200": 50_000])
            #expect(account.accepted(token: try #require(SimulatedToken(hex: anyToken))) == 50_000)
            #expect(account.highestConcurrentStreams == 200 && account.connections == 1)
            #expect(account.acceptedAnswerLost == 0)
        }
    }

    @Test("keeps only the newest IDs, and counts all", .timeLimit(.minutes(10)))
    func memory() async throws {
        try await withSimulator(streams: 1000) {
            $0.accountLimit = 1000
        } _: { server in
            let report = try await h2load(server, requests: 20_000, streams: 200)
            #expect(report.output.contains("20000 succeeded, 0 failed"))
            let account = server.account
            #expect(account.accepted == 20_000 && account.distinctIDs == 20_000 && account.duplicates == 0)
            let page = try server.accountPage(details: true)
            #expect((page["accepted_by_id"] as? [String: Int])?.count ?? .max <= 2000)
            #expect((page["accepted_by_token"] as? [String: Int])?.count == 1)
            #expect(try server.accountPage()["forgotten_ids"] as? Int ?? 0 >= 18_000)
        }
    }

    @Test("counts accepted notifications whose answer was lost when the client gave up")
    func lostAnswers() async throws {
        try await withSimulator {
            $0.delay = AnswerDelay("30s")
        } _: { server in
            #expect(try await Push { $0.arguments = ["--max-time", "0.5"] }.send(to: server).exit == 28)
            // The server notices the lost connection some time after the client has given up.
            try await eventually("the answer counts as lost") { server.account.acceptedAnswerLost == 1 }
            #expect(server.account.accepted == 1 && server.account.answers.isEmpty)
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
                "/usr/bin/openssl",
                ["s_client", "-quiet", "-alpn", "h2", "-connect", "127.0.0.1:\(server.port)"],
                input: Data(("GET / HTTP/1.1\r\n\r\n" + String(repeating: " ", count: 64)).utf8))
            #expect(!garbage.output.contains("HTTP/1.1"))
            #expect(try await Push().send(to: server).status == 200)
            #expect(server.account.protocolErrors == 2 && server.account.requests == 1)
        }
    }
}
