import ArgumentParser
import FoundationEssentials
import PushQueue

struct Pause: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Pause a queue or an app: workers finish what they have claimed, and claim or send no more of it.",
        discussion: """
            Jobs can be enqueued all the same, and wait; those of a paused app are put off, and no attempt is spent on \
            them. The pause lasts, whatever is restarted, until `apns-worker resume`.
            """)

    @OptionGroup(title: "Queue") var queue: QueueOptions

    @Option(help: "An app to pause, instead of a queue.") var app: String?

    @Option(help: "Why, for whoever wonders.") var reason: String

    func validate() throws {
        guard !QueuePause.printable(reason).allSatisfy(\.isWhitespace), reason.utf8.count <= 1000 else {
            throw ValidationError("--reason has to say why, in at most 1000 bytes")
        }
    }

    func run() async throws {
        if let app {
            let pause = AppPause(
                reason: QueuePause.printable(reason), since: Int64(Date().timeIntervalSince1970 * 1000))
            try await queue.redis.withClient(for: app) { client, keys in
                try await AppPauses.order(pause, of: app, client, keys)
                print("app \(app) is paused: \(pause.reason)")
            }
            return
        }
        try await queue.withClient { client, keys in
            try await QueuePause.set(client, keys, reason: reason)
            print("queue \(keys.queue) is paused: \(QueuePause.printable(reason))")
        }
    }
}
