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

extension DeadLetterSweep {
    /// Reports that nothing matches, with the number of all dead letters.
    /// - Returns: the exit status: 1 if the filter has the ID or key of a job.
    static func reportNothing(_ queues: [DeadLetters], _ filter: DeadLetterFilter) async throws -> Int32 {
        Terminal.note(try await nothingFound(in: queues) + "\n")
        return filter.ids.isEmpty && filter.keys.isEmpty ? 0 : ExitStatus.attention.rawValue
    }
}
