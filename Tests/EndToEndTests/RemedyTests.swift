import Operations
import Testing

@testable import apns_worker

extension EndToEnd {
    @Suite("Commands of problems")
    struct RemedyTests {
        private static let remedies: [Remedy] = [
            .resumeApp("news"), .resumeQueue("q"), .resumeCampaign("c"), .resumeCampaign("-c"), .cancelCampaign("c"),
            .showCampaign("c"), .listDeadLetters(queue: "q"), .requeue(queue: "q", reason: "BadPayload"),
            .requeue(queue: "q", reason: nil), .unquiet, .startWorker(queues: ["q", "r"]), .check,
            .resumeApp("-a"), .resumeQueue("-q"), .requeue(queue: "-q", reason: "-r"), .listDeadLetters(queue: "-q"),
            .startWorker(queues: ["-q"]),
        ]

        @Test("the command that a problem advises is one of the program", arguments: remedies)
        private func parses(remedy: Remedy) throws {
            let access = FleetAccess([
                ("--redis", "", "redis://r:1"), ("--redis-ca", "", "ca.pem"), ("--prefix", "", "-p"),
            ])
            let words = remedy.command(access).split(separator: " ").map(String.init)
            #expect(words.first == "apns-worker")
            // These ask for a confirmation, for which there is no terminal here.
            let asks =
                [.cancelCampaign("c"), .requeue(queue: "q", reason: nil), .unquiet].contains(remedy) ? ["--yes"] : []
            #expect(throws: Never.self) { _ = try ApnsWorker.parseAsRoot(Array(words.dropFirst()) + asks) }
        }
    }
}
