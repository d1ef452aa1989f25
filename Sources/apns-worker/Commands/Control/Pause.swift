import ArgumentParser
import Operations
import PrintableText
import PushJob
import PushQueue
import PushWorker
import Redis

struct Pause: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "pause",
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

    @Flag(help: "Do not ask for confirmation of --all, or of a lookalike app name. Required without a terminal.")
    var yes = false

    @Flag(
        help: """
            Print JSON, an object per queue: queue or app, paused (reason, since, by), before, if it was paused, and for a queue \
            claimed, notifications (at most) and waiting.
            """)
    var json = false

    private func change() throws -> PauseChange {
        var fields = Fields(refusesEmpty: true)
        fields.append("reason", reason)
        fields.append("now", now ? "1" : nil)
        fields.append("app", app)
        return try readingFlags { () throws(FieldMistake) in try PauseChange(fields, isOfApp: app != nil) }
    }

    func validate() throws {
        if all, app != nil { throw ValidationError("--all and --app cannot be combined") }
        _ = try change()
        if all { try Confirmation.check(isGiven: yes) }
    }

    func run() async throws {
        let (change, settings) = (try change(), try queue.settings())
        let command = ChangeCommand(isJSON: json, isConfirmed: yes, asks: { _ in all })
        try await QueueChoice.withPaused(queue, app: app, all: all, force: force) { fleet, queues in
            // With --all, the queues were found in Redis or in the configuration, so nothing is misspelled.
            try await command.run(change, Desk(fleet, queues, settings, isForced: force || all))
            let remedies = app.map { [.resumeApp($0.printable)] } ?? queues.map { Remedy.resumeQueue($0.queue) }
            for remedy in remedies where !json {
                print("To end the pause:\n  \(remedy.command(fleet.access))")
            }
        }
    }
}

struct Resume: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "resume",
        abstract: "Resume paused queues or an app.",
        discussion: """
            Workers continue within about a second. With --app, each lane also sends a probe of the app at once, whether or \
            not it was paused: that saves the wait after the problem of a slow app, credential or endpoint is fixed.

            The exit status is 1 if no queue was paused.
            """)

    @OptionGroup(title: "Queue") var queue: QueueOptions

    @Option(help: ArgumentHelp("App to resume, instead of a queue.", valueName: "name")) var app: String?

    @Flag(
        name: [.long, .customLong("all-queues")], help: "All paused queues that are configured, or else all in Redis.")
    var all = false

    @Flag(help: "Do not ask for confirmation of --all, or of a lookalike app name. Required without a terminal.")
    var yes = false

    @Flag(
        help: "Print JSON, an object per queue: queue or app, and before (reason, since, until, by), if it was paused.")
    var json = false

    private func change() throws -> ResumeChange {
        var fields = Fields(refusesEmpty: true)
        fields.append("app", app)
        return try readingFlags { () throws(FieldMistake) in try ResumeChange(fields, isOfApp: app != nil) }
    }

    func validate() throws {
        if all, app != nil { throw ValidationError("--all and --app cannot be combined") }
        _ = try change()
        if all { try Confirmation.check(isGiven: yes) }
    }

    func run() async throws {
        let (change, settings) = (try change(), try queue.settings())
        let command = ChangeCommand(isJSON: json, isConfirmed: yes, asks: { _ in all })
        try await QueueChoice.withPaused(queue, app: app, all: all, force: true) { fleet, queues in
            let result = try await command.run(change, Desk(fleet, queues, settings))
            if result?.hasNoEffect ?? true { throw ExitCode(ExitStatus.attention.rawValue) }
        }
    }
}
