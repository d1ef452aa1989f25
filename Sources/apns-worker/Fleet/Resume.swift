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

    @Flag(help: "Print JSON: an object with queue or app, and before (reason, since, until, by), if it was paused.")
    var json = false

    func run() async throws {
        if let app {
            let settings = try queue.settings()
            try await settings.withClient(forApp: app) { client, keys in
                // What is there may be of any kind; it can be ended all the same.
                let before = try? await AppPauses.read(app, client, keys)
                let wasPaused = try await AppPauses.end(app, client, keys)
                try report(PauseChange(app: app, before: before.map { .init($0) }), wasPaused)
            }
            return try await KnownApps.warn(app, settings)
        }
        try await queue.withClient { client, keys in
            let before = try? await QueuePause.read(client, keys)
            let wasPaused = try await QueuePause.clear(client, keys)
            try report(PauseChange(queue: keys.queue, before: before.map { .init($0) }), wasPaused)
        }
    }

    private func report(_ change: PauseChange, _ wasPaused: Bool) throws {
        if json { return print(try JSONLine.text(change, keys: .convertToSnakeCase)) }
        guard wasPaused else { return print("\(change.subject) was not paused") }
        print("\(change.subject) is resumed" + (change.before.map { "; it was paused: \($0.inWords)" } ?? ""))
    }
}
