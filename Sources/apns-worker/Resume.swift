import ArgumentParser
import PushQueue

struct Resume: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "End the pause of a queue or an app: workers go on within about a second.",
        discussion: """
            An app that APNs refuses is paused by the workers themselves, and goes on when a probe gets through; this is for \
            those who know that the fault is mended and would not wait. If it is not, the app is paused again.
            """)

    @OptionGroup(title: "Queue") var queue: QueueOptions

    @Option(help: "An app to resume, instead of a queue.") var app: String?

    func run() async throws {
        if let app {
            try await queue.redis.withClient(for: app) { client, keys in
                let wasPaused = try await AppPauses.end(app, client, keys)
                print("app \(app) " + (wasPaused ? "is resumed" : "was not paused"))
            }
            return
        }
        try await queue.withClient { client, keys in
            let wasPaused = try await QueuePause.clear(client, keys)
            print("queue \(keys.queue) " + (wasPaused ? "is resumed" : "was not paused"))
        }
    }
}
