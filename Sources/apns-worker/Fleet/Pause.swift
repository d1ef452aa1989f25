import ArgumentParser
import FoundationEssentials
import Glibc
import PrintableText
import PushQueue
import PushWorker
import Redis

struct Pause: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Pause a queue or an app.",
        discussion: """
            Workers finish the jobs that they have claimed from a paused queue, and claim no more. Jobs of a paused app are \
            deferred without spending attempts. Producers can still enqueue. The pause survives restarts and ends with \
            `apns-worker resume`. Pausing again changes the reason.
            """)

    @OptionGroup(title: "Queue") var queue: QueueOptions

    @Option(help: "App to pause, instead of a queue.") var app: String?

    @Option(help: "Reason shown in `status`.") var reason: String

    @Flag(help: "Print JSON: an object with queue or app, paused (reason, since, by), and before, if it was paused.")
    var json = false

    func validate() throws {
        guard !reason.printable.allSatisfy(\.isWhitespace), reason.count <= 200 else {
            throw ValidationError("--reason must have 1 to 200 printable characters")
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
                \(waiting == 1 ? "1 waits" : "\(Words.number(waiting)) wait"). To end the pause:
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
                Workers defer its jobs within a few seconds, without spending attempts. To end the pause:
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

struct Resume: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Resume a paused queue or app.",
        discussion: """
            Workers continue within about a second. An app that APNs refuses is paused by the workers, and resumes when a probe \
            succeeds; this command saves the wait after the problem is fixed. If it is not fixed, the app is paused again.
            """)

    @OptionGroup(title: "Queue") var queue: QueueOptions

    @Option(help: "App to resume, instead of a queue.") var app: String?

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

/// The change that `pause` and `resume` have made, as JSON.
struct PauseChange: Encodable {
    var queue: String?
    var app: String?
    /// The pause now; `nil` if it has ended.
    var paused: FleetStatus.Pause?
    /// The pause before.
    var before: FleetStatus.Pause?

    var subject: String { app.map { "app \($0)" } ?? "queue \(queue ?? "")" }
}

extension FleetStatus.Pause {
    /// Why, since when and by whom.
    var inWords: String {
        let since = since.map { ", since " + Moment.text($0) }
        let by = by.map { isByHand ? ", by \($0)" : ", noticed by \($0)" }
        return reason + (since ?? "") + (by ?? "")
    }
}

/// Whoever runs this command.
enum Person {
    /// The system's name of the user; in a container there may be none.
    private static var account: String? {
        guard let entry = getpwuid(getuid()), let name = entry.pointee.pw_name else { return nil }
        return String(cString: name)
    }

    /// The user's name and the host's, as far as they can be had.
    static var name: String {
        let environment = ProcessInfo.processInfo.environment
        let user = ["SUDO_USER", "USER", "LOGNAME"].compactMap { environment[$0] }.first { !$0.isEmpty }
        return "\(user ?? account ?? "uid \(getuid())")@\(HostName.current)".printable
    }
}

/// Which apps workers know.
enum KnownApps {
    /// Tells of an app that no worker knows: a mistyped name does nothing.
    static func warn(_ app: String, _ settings: Settings) async throws {
        let status = try await FleetOptions.withFleet(settings, searches: true) { fleet in
            try await FleetStatus.read(fleet, fleet.queues().keys)
        }
        // Without a worker nobody knows.
        let known = status.apps.filter { $0.lanes > 0 }.map(\.name)
        guard !known.isEmpty, !known.contains(app) else { return }
        Terminal.tell("warning: no worker knows an app \(app); they know \(known.joined(separator: ", "))\n")
    }
}
