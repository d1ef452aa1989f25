import Operations
import TestSupport
import Testing

@testable import apns_worker

extension EndToEnd {
    @Suite("Commands of problems")
    struct RemedyTests {
        private static let remedies: [Remedy] = [
            .resumeApp("news"), .resumeQueue("q"), .resumeCampaign("c"), .resumeCampaign("-c"), .cancelCampaign("c"),
            .showCampaign("c"), .listDeadLetters(queue: "q"), .requeue(queue: "q", reason: "BadPayload"),
            .requeue(queue: "q", reason: nil), .unquiet, .startWorker(queues: ["q", "r"]), .countJobs(queue: "q"),
            .check,
            .resumeApp("-a"), .resumeQueue("-q"), .requeue(queue: "-q", reason: "-r"), .listDeadLetters(queue: "-q"),
            .startWorker(queues: ["-q"]), .showJobs(["order-7", "-j"]),
        ]

        @Test("the command that a problem advises is one of the program", arguments: remedies)
        private func parses(remedy: Remedy) throws {
            let access = FleetAccess([
                ("--redis", "", "redis://r:1"), ("--redis-ca", "", "ca.pem"), ("--prefix", "", "-p"),
            ])
            let words = remedy.command(access).split(separator: " ").map(String.init)
            #expect(words.first == "apns-worker")
            // These commands need a confirmation, which is impossible without a terminal.
            let asks =
                [.cancelCampaign("c"), .requeue(queue: "q", reason: nil), .unquiet].contains(remedy) ? ["--yes"] : []
            #expect(throws: Never.self) { _ = try ApnsWorker.parseAsRoot(Array(words.dropFirst()) + asks) }
        }

        @Test("A command in the table of problems is one of the program.", arguments: Problem.table.map(\.name))
        private func ofTable(name: String) async throws {
            let kind = try #require(Problem.kind(name))
            for match in (kind.action + " " + kind.hint).matches(of: /`apns-worker ([^`]*)`/) {
                let names = match.1.split(separator: " ").prefix { !$0.hasPrefix("-") }.map(String.init)
                try await CommandLineTests.run(["help"] + names).succeeds()
            }
        }
    }
}
