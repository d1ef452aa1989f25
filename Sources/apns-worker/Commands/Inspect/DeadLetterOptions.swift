import ArgumentParser
import Glibc
import Operations
import PrintableText
import PushJob
import PushQueue
import Redis

/// The options that select dead letters, which several commands share.
struct DeadLetterOptions: ParsableArguments {
    @Option(help: .field("reason", of: DeadLetterFilter.fields)) var reason: [String] = []
    @Option(help: .field("key", of: DeadLetterFilter.fields)) var key: [String] = []
    @Option(help: .field("id", of: DeadLetterFilter.fields)) var id: [String] = []
    @Option(help: .field("app", of: DeadLetterFilter.fields)) var app: [String] = []
    @Option(help: .field("campaign", of: DeadLetterFilter.fields)) var campaign: [String] = []
    @Option(help: .field("fair", of: DeadLetterFilter.fields)) var fair: [String] = []
    @Option(help: .field("label", of: DeadLetterFilter.fields)) var label: [String] = []
    @Option(help: .field("token", of: DeadLetterFilter.fields)) var token: [String] = []
    @Option(name: .customLong("error"), help: .field("error", of: DeadLetterFilter.fields))
    var errorText: [String] = []
    @Option(help: .field("since", of: DeadLetterFilter.fields)) var since: String?
    @Option(help: .field("until", of: DeadLetterFilter.fields)) var until: String?

    /// The fields of the filter, and the maximum number of dead letters.
    func fields(limit: Int? = nil, all: Bool = false) -> Fields {
        var fields = Fields(refusesEmpty: true)
        for (name, values) in [
            ("reason", reason), ("key", key), ("id", id), ("app", app), ("campaign", campaign), ("fair", fair),
            ("label", label), ("token", token),
            ("error", errorText),
        ] { fields.append(name, values) }
        fields.append("since", since)
        fields.append("until", until)
        fields.append("limit", limit.map { "\($0)" })
        fields.append("all", all ? "1" : nil)
        return fields
    }

    /// - Parameter now: the time from which durations count back.
    func filter(now: Int64 = Moment.now) throws -> DeadLetterFilter {
        try readingFlags { () throws(FieldMistake) in try DeadLetterFilter(fields(), now: now) }
    }

    static func key(_ text: String) throws -> String { try key(text, of: "a dead letter", from: "dead list") }

    /// Reads a key as shown in a list.
    static func key(_ text: String, of what: String, from list: String) throws -> String {
        guard Fields.isKey(text) else {
            throw ValidationError("the key of \(what) is ten hex digits, as `apns-worker \(list)` shows it")
        }
        return text.lowercased()
    }

    static func check(limit: Int?) throws {
        if let limit, limit < 1 { throw ValidationError("--limit must be at least 1") }
    }
}

struct DeadLetterChangeOptions: ParsableArguments {
    @Flag(help: "All dead letters of the queue.") var all = false

    @Flag(help: "All queues that are configured, or else all in Redis.") var allQueues = false

    @Flag(help: "Continue if no queue has the name.") var force = false

    @Option(help: ArgumentHelp("Maximum number; the oldest are changed first.", valueName: "number")) var limit: Int?

    @Flag(help: "Show what would be changed, and change nothing.") var dryRun = false

    @Flag(help: "Do not ask for confirmation.") var yes = false

    @Flag(help: "Print the result as JSON, an object per queue.") var json = false

    /// Reads a change of dead letters, so that mistakes are reported before anything else is done.
    func check(_ kind: DeadLettersChange.Kind, _ fields: Fields) throws {
        _ = try readingFlags { () throws(FieldMistake) in try DeadLettersChange(kind, fields, now: Moment.now) }
    }

    func run(
        _ kind: DeadLettersChange.Kind, _ fields: Fields, _ queue: QueueOptions, asks: @escaping (ChangePlan) -> Bool
    ) async throws {
        let settings = try queue.settings()
        try await QueueChoice.withChanged(queue, all: allQueues, force: force) { fleet, queues in
            let change = try DeadLettersChange(kind, fields, now: try await fleet.now(of: queues))
            let command = ChangeCommand(
                isJSON: json, isDryRun: dryRun, isConfirmed: yes, asks: asks, things: .deadLetters,
                nothing: change.filter.isEmpty ? 0 : 1)
            try await command.run(change, Desk(fleet, queues, settings, isForced: force))
        }
    }
}

extension DeadLetterSweep {
    /// Reports that nothing matches, with the number of all dead letters.
    /// - Returns: the exit status: 1 if the filter has the ID or key of a job.
    static func reportNothing(_ queues: [DeadLetters], _ filter: DeadLetterFilter) async throws -> Int32 {
        Terminal.note(try await nothingFound(in: queues) + "\n")
        return filter.ids.isEmpty && filter.keys.isEmpty ? 0 : ExitStatus.attention.rawValue
    }
}
