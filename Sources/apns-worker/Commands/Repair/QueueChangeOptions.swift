import ArgumentParser
import Operations
import PushQueue

/// The options of commands that change jobs or dead letters.
struct QueueChangeOptions: ParsableArguments {
    @Flag(help: "Everything in the queue, without a filter.") var all = false

    @Flag(help: "All queues that are configured, or else all in Redis.") var allQueues = false

    @Flag(help: "Continue if no queue has the name.") var force = false

    @Option(
        help: ArgumentHelp(
            "Maximum number, of all queues together. The oldest dead letters are changed first.", valueName: "number"))
    var limit: Int?

    @Flag(help: "Show what would be changed, and change nothing.") var dryRun = false

    @Flag(help: "Do not ask for confirmation. Required without a terminal.") var yes = false

    @Flag(help: "Print the result as JSON, an object per queue.") var json = false

    /// Reads a change of jobs, so that mistakes are reported before anything else is done.
    func check(_ kind: JobsChange.Kind, _ fields: Fields) throws {
        _ = try readingFlags { () throws(FieldMistake) in try JobsChange(kind, fields, now: Moment.now) }
        try Confirmation.check(isGiven: dryRun || yes)
    }

    func run(_ kind: JobsChange.Kind, _ fields: Fields, _ queue: QueueOptions) async throws {
        try await run(queue) { now in
            let change = try JobsChange(kind, fields, now: now)
            let namesOne = !change.filter.ids.isEmpty || !change.filter.keys.isEmpty
            return (change, ChangeCommand(isJSON: json, isDryRun: dryRun, isConfirmed: yes, nothing: namesOne ? 1 : 0))
        }
    }

    /// Checks the fields of a change of dead letters. ``check(_:_:)`` checks those of a change of jobs.
    func check(_ kind: DeadLettersChange.Kind, _ fields: Fields) throws {
        _ = try readingFlags { () throws(FieldMistake) in try DeadLettersChange(kind, fields, now: Moment.now) }
    }

    func run(
        _ kind: DeadLettersChange.Kind, _ fields: Fields, _ queue: QueueOptions, asks: @escaping (ChangePlan) -> Bool
    ) async throws {
        try await run(queue) { now in
            let change = try DeadLettersChange(kind, fields, now: now)
            let command = ChangeCommand(
                isJSON: json, isDryRun: dryRun, isConfirmed: yes, asks: asks, things: .deadLetters,
                nothing: change.filter.isEmpty ? 0 : 1)
            return (change, command)
        }
    }

    private func run<Made: Change>(
        _ queue: QueueOptions, _ make: (_ now: Int64) throws -> (Made, ChangeCommand)
    ) async throws {
        let settings = try queue.settings()
        try await QueueChoice.withChanged(queue, all: allQueues, force: force) { fleet, queues in
            let (change, command) = try make(try await fleet.now(of: queues))
            try await command.run(change, Desk(fleet, queues, settings, isForced: force))
        }
    }
}
