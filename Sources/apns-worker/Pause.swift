import ArgumentParser
import PushQueue

struct Pause: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Pause a queue: workers finish what they have claimed from it, and claim no more.",
        discussion: """
            Jobs can be enqueued all the same, and wait. The queue stays paused, whatever is restarted, until \
            `apns-worker resume`.
            """)

    @OptionGroup(title: "Queue") var queue: QueueOptions

    @Option(help: "Why, for whoever wonders.") var reason: String

    func validate() throws {
        guard !QueuePause.printable(reason).allSatisfy(\.isWhitespace), reason.utf8.count <= 1000 else {
            throw ValidationError("--reason has to say why, in at most 1000 bytes")
        }
    }

    func run() async throws {
        try await queue.withClient { client, keys in
            try await QueuePause.set(client, keys, reason: reason)
            print("queue \(keys.queue) is paused: \(QueuePause.printable(reason))")
        }
    }
}
