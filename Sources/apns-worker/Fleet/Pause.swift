import ArgumentParser
import Operations
import PrintableText
import PushJob
import PushQueue
import PushWorker
import Redis

struct Pause: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Pause queues or an app.",
        discussion: """
            Workers finish the jobs that they have claimed from a paused queue, and claim no more; the command prints how many \
            notifications that are at most. Jobs of a paused app are deferred without spending attempts. Producers can still \
            enqueue. The pause survives restarts and ends with `apns-worker resume`. Pausing again changes the reason.

              apns-worker pause --queue critical,bulk --reason 'wrong template'
              apns-worker pause --now      # only notifications in flight go out
              apns-worker pause --all --yes
            """)

    @OptionGroup(title: "Queue") var queue: QueueOptions

    @Option(help: ArgumentHelp("App to pause, instead of a queue.", valueName: "name")) var app: String?

    @Flag(
        name: [.long, .customLong("all-queues")], help: "All queues that are configured, or else all in Redis.")
    var all = false

    @Option(help: ArgumentHelp("Reason shown in `status`. (default: by user@host)", valueName: "text")) var reason:
        String?

    @Flag(help: "Have workers release jobs that they have claimed but not submitted, within seconds.")
    var now = false

    @Flag(help: "Continue if no queue or app has the name.") var force = false

    @Flag(help: "Do not ask for confirmation of --all. Required without a terminal.") var yes = false

    @Flag(
        help: """
            Print JSON, an object per queue: queue or app, paused (reason, since, by), before, if it was paused, and for a queue \
            claimed, notifications (at most) and waiting.
            """)
    var json = false

    func validate() throws {
        try Person.check(reason: reason)
        if all, app != nil { throw ValidationError("--all and --app cannot be combined") }
        if now, app != nil { throw ValidationError("--now is for queues: jobs of a paused app are deferred at once") }
        if all { try Confirmation.check(isGiven: yes) }
    }

    func run() async throws {
        if let app { return try await pause(app: app) }
        let settings = try queue.settings()
        try await QueueChoice.withChanged(queue, all: all, flag: "--all", force: force) { fleet, queues in
            if all {
                let names = queues.map(\.queue.printable).joined(separator: ", ")
                try Confirmation.demand("Pause \(queues.count == 1 ? "queue" : "queues") \(names)?", isGiven: yes)
            }
            for keys in queues {
                let client = try await fleet.client(for: keys.paused)
                var change = try await PauseChange.pause(
                    keys, reason: writtenReason, by: Person.name, handsBack: now, client)
                let found = try await QueueOverview.read(client, keys)
                let claimed = try await ClaimedNotifications.count(
                    client, keys, found, as: settings.format(of: keys.queue))
                change.claimed = found.claims
                change.notifications = claimed.notifications
                change.waiting = found.waiting + found.due
                try report(change)
                await fleet.record(.pause, change.subject, detail: writtenReason)
                if !json { explain(found, claimed, settings, keys) }
            }
        }
    }

    /// Prints what workers will still send, and how to end the pause.
    private func explain(
        _ found: QueueOverview, _ claimed: ClaimedNotifications, _ settings: Settings, _ keys: QueueKeys
    ) {
        let waiting = found.waiting + found.due
        let rest = waiting == 1 ? "1 waits" : "\(Words.number(waiting)) wait"
        var sentence = "Workers claim none of its jobs; \(rest)."
        if found.claims > 0 {
            let jobs = found.claims == 1 ? "the job that is claimed" : "the \(Words.number(found.claims)) claimed jobs"
            let most = claimed.isPartial ? "at least" : "at most"
            let count = claimed.notifications
            let inFlight = found.workers.reduce(0) { $0 + ($1.report?.inFlight ?? 0) }
            sentence =
                now
                ? "Workers release \(jobs) within seconds, except for the notifications in flight, "
                    + "about \(Words.number(inFlight)); \(rest)."
                : "Workers finish \(jobs), \(most) \(Words.number(count)) \(count == 1 ? "notification" : "notifications")"
                    + (claimed.milliseconds.map { ", in about \(Words.duration($0))" } ?? "") + "; \(rest)."
        }
        print("\(sentence) To end the pause:\n  apns-worker resume\(Self.flags(settings, keys))")
    }

    private func pause(app: String) async throws {
        let settings = try queue.settings()
        if !force { try await KnownApps.check(app, settings) }
        try await settings.withClient(forApp: app) { client, keys in
            try report(
                try await PauseChange.pause(app: app, reason: writtenReason, by: Person.name, client, keys))
        }
        await settings.record(.pause, "app \(app)", detail: writtenReason)
        if !json {
            print(
                """
                Workers defer its jobs within a few seconds, without spending attempts. To end the pause:
                  apns-worker resume --app \(app.printable)
                """)
        }
    }

    private var writtenReason: String { reason?.printable ?? "by \(Person.name)" }

    private func report(_ change: PauseChange) throws {
        if json { return print(try JSONLine.text(change, keys: .convertToSnakeCase)) }
        let sentence = "\(change.subject) is paused: \(change.paused?.reason ?? "")"
        guard let before = change.before else { return print(sentence) }
        print("\(sentence) (it was paused before: \(before.inWords))")
    }

    private static func flags(_ settings: Settings, _ keys: QueueKeys) -> String {
        (keys.queue == "default" ? "" : " --queue \(keys.queue)")
            + (settings.keyPrefix == "push" ? "" : " --prefix \(settings.keyPrefix)")
    }
}

struct Resume: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Resume paused queues or an app.",
        discussion: """
            Workers continue within about a second. An app that APNs refuses is paused by the workers, and resumes when a probe \
            succeeds; this command saves the wait after the problem is fixed. If it is not fixed, the app is paused again.

            The exit status is 1 if none of them was paused.
            """)

    @OptionGroup(title: "Queue") var queue: QueueOptions

    @Option(help: ArgumentHelp("App to resume, instead of a queue.", valueName: "name")) var app: String?

    @Flag(
        name: [.long, .customLong("all-queues")], help: "All paused queues that are configured, or else all in Redis.")
    var all = false

    @Flag(help: "Do not ask for confirmation of --all. Required without a terminal.") var yes = false

    @Flag(
        help: "Print JSON, an object per queue: queue or app, and before (reason, since, until, by), if it was paused.")
    var json = false

    func validate() throws {
        if all, app != nil { throw ValidationError("--all and --app cannot be combined") }
        if all { try Confirmation.check(isGiven: yes) }
    }

    func run() async throws {
        var wasPaused = false
        if let app {
            let settings = try queue.settings()
            try await settings.withClient(forApp: app) { client, keys in
                // The key may have a value of any type; it will be deleted.
                let before = try? await AppPauses.read(app, client, keys)
                wasPaused = try await AppPauses.end(app, client, keys)
                try report(PauseChange(app: app, before: before.map { .init($0) }), wasPaused)
            }
            if wasPaused {
                await settings.record(.resume, "app \(app)")
            } else {
                try await KnownApps.check(app, settings, hint: "")
            }
        } else {
            try await QueueChoice.withChanged(queue, all: all, flag: "--all", force: true) { fleet, queues in
                wasPaused = try await resume(queues, fleet)
            }
        }
        if !wasPaused { throw ExitCode(ExitStatus.attention.rawValue) }
    }

    /// - Returns: true if any queue was paused.
    private func resume(_ queues: [QueueKeys], _ fleet: Fleet) async throws -> Bool {
        if all {
            let names = queues.map(\.queue.printable).joined(separator: ", ")
            try Confirmation.demand("Resume \(queues.count == 1 ? "queue" : "queues") \(names)?", isGiven: yes)
        }
        var any = false
        for keys in queues {
            let client = try await fleet.client(for: keys.paused)
            let before = try? await QueuePause.read(client, keys)
            let wasPaused = try await QueuePause.clear(client, keys)
            any = any || wasPaused
            if wasPaused { await fleet.record(.resume, "queue \(keys.queue)") }
            try report(PauseChange(queue: keys.queue, before: before.map { .init($0) }), wasPaused)
        }
        if !any, !all {
            try await QueueChoice.checkExistence(
                of: queues, in: fleet, configured: queue.settings().configuredQueueNames, hint: "")
        }
        return any
    }

    private func report(_ change: PauseChange, _ wasPaused: Bool) throws {
        if json { return print(try JSONLine.text(change, keys: .convertToSnakeCase)) }
        guard wasPaused else { return print("\(change.subject) was not paused") }
        print("\(change.subject) is resumed" + (change.before.map { "; it was paused: \($0.inWords)" } ?? ""))
    }
}

/// The apps known to workers.
enum KnownApps {
    /// Checks that an app is in the configuration, known to a worker, or paused.
    /// - Throws: ``CommandFailure`` with a suggestion. Does not throw if no app is known at all.
    static func check(
        _ app: String, _ settings: Settings, hint: String = " --force continues anyway"
    ) async throws {
        let configured = try settings.appNames
        let status = try await FleetOptions.withFleet(settings, searches: true) { fleet in
            try await FleetStatus.read(fleet, fleet.queues().keys, apps: configured)
        }
        guard let known = status.others(than: app) else { return }
        throw CommandFailure(.attention, QueueChoice.unknown("app", app, known) + hint)
    }
}
