import ArgumentParser
import FoundationEssentials
import PrintableText
import PushQueue
import Redis

struct Pause: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Pause a queue or an app: workers finish what they have claimed, and claim or send no more of it.",
        discussion: """
            Jobs can be enqueued all the same, and wait; those of a paused app are put off, and no attempt is spent on \
            them. The pause lasts, whatever is restarted, until `apns-worker resume`. To pause what is paused already \
            changes the reason.
            """)

    @OptionGroup(title: "Queue") var queue: QueueOptions

    @Option(help: "An app to pause, instead of a queue.") var app: String?

    @Option(help: "Why, for whoever wonders.") var reason: String

    @Flag(help: "Print JSON: an object with queue or app, paused (reason, since, by), and before, if it was paused.")
    var json = false

    func validate() throws {
        guard !reason.printable.allSatisfy(\.isWhitespace), reason.count <= 200 else {
            throw ValidationError("--reason has to say why, in at most 200 characters")
        }
    }

    func run() async throws {
        if let app { return try await pause(app: app) }
        let settings = try queue.settings()
        try await queue.withClient(settings) { client, keys in
            let before = try? await QueuePause.read(client, keys)
            let pause = try await pause(client, since: before?.since)
            try await QueuePause.set(client, keys, pause)
            try report(PauseChange(queue: keys.queue, paused: .init(pause), before: before.map { .init($0) }))
            guard !json else { return }
            let found = try await QueueOverview.read(client, keys)
            let claimed =
                found.claims == 1 ? "1 job that is claimed" : "\(Words.number(found.claims)) jobs that are claimed"
            let waiting = found.waiting + found.due
            print(
                """
                \(found.claims > 0 ? "Workers finish the \(claimed), and claim no more" : "Workers claim none of its jobs"); \
                \(waiting == 1 ? "1 waits" : "\(Words.number(waiting)) wait"). This ends it:
                  apns-worker resume\(Self.flags(settings, keys))
                """)
        }
    }

    private func pause(app: String) async throws {
        let settings = try queue.settings()
        try await settings.withClient(forApp: app) { client, keys in
            let before = try? await AppPauses.read(app, client, keys)
            let pause = try await pause(client, since: before?.since)
            try await AppPauses.order(pause, of: app, client, keys)
            try report(PauseChange(app: app, paused: .init(pause), before: before.map { .init($0) }))
        }
        if !json {
            print(
                """
                Workers put its jobs off within a few seconds, and no attempt is spent. This ends it:
                  apns-worker resume --app \(app)
                """)
        }
        try await KnownApps.warn(app, settings)
    }

    private func pause(_ client: RedisClient, since: Int64?) async throws -> AppPause {
        let time = try await client.call(RedisCommand("TIME")).root.children.compactMap(\.string).first
        let now = time.flatMap { Int64($0) } ?? Int64(Date().timeIntervalSince1970)
        return AppPause(reason: reason.printable, since: since ?? now * 1000, by: Person.name)
    }

    private func report(_ change: PauseChange) throws {
        if json { return print(try JSONLine.text(change, keys: .convertToSnakeCase)) }
        let subject = change.subject
        guard let before = change.before else { return print("\(subject) is paused: \(reason.printable)") }
        print("\(subject) is paused: \(reason.printable) (it was paused before: \(before.inWords))")
    }

    private static func flags(_ settings: Settings, _ keys: QueueKeys) -> String {
        (keys.queue == "default" ? "" : " --queue \(keys.queue)")
            + (settings.keyPrefix == "push" ? "" : " --prefix \(settings.keyPrefix)")
    }
}
