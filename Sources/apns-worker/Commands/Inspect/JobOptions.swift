import ArgumentParser
import Operations

/// The filters of the commands for jobs.
struct JobOptions: ParsableArguments {
    @Option(help: "Jobs in these states, such as waiting,retrying: waiting, retrying, scheduled, deferred or claimed.")
    var state: String?

    @Option(help: .field("key", of: JobFilter.fields)) var key: [String] = []
    @Option(help: .field("id", of: JobFilter.fields)) var id: [String] = []
    @Option(help: .field("token", of: JobFilter.fields)) var token: [String] = []
    @Option(help: .field("app", of: JobFilter.fields)) var app: [String] = []
    @Option(help: .field("topic", of: JobFilter.fields)) var topic: [String] = []
    @Option(help: .field("campaign", of: JobFilter.fields)) var campaign: [String] = []
    @Option(help: .field("fair", of: JobFilter.fields)) var fair: [String] = []
    @Option(help: .field("label", of: JobFilter.fields)) var label: [String] = []
    @Option(help: .field("reason", of: JobFilter.fields)) var reason: [String] = []
    @Option(help: .field("match", of: JobFilter.fields)) var match: [String] = []
    @Option(help: .field("since", of: JobFilter.fields)) var since: String?
    @Option(help: .field("until", of: JobFilter.fields)) var until: String?
    @Option(help: .field("due_before", of: JobFilter.fields)) var dueBefore: String?

    /// The fields of the filter, and the maximum number of jobs.
    func fields(limit: Int? = nil, all: Bool = false) -> Fields {
        var fields = Fields(refusesEmpty: true)
        fields.append("state", state)
        for (name, values) in [
            ("key", key), ("id", id), ("token", token), ("app", app), ("topic", topic), ("campaign", campaign),
            ("fair", fair), ("label", label), ("reason", reason), ("match", match),
        ] { fields.append(name, values) }
        for (name, value) in [("since", since), ("until", until), ("due_before", dueBefore)] {
            fields.append(name, value)
        }
        fields.append("limit", limit.map { "\($0)" })
        fields.append("all", all ? "1" : nil)
        return fields
    }

    /// - Parameter now: the time from which durations count back.
    func filter(now: Int64 = Moment.now) throws -> JobFilter {
        try readingFlags { () throws(FieldMistake) in try JobFilter(fields(), now: now) }
    }

    static func key(_ text: String) throws -> String {
        try DeadLetterOptions.key(text, of: "a job", from: "jobs list")
    }
}

extension ArgumentHelp {
    /// Returns the help of a filter's flag.
    static func field(_ name: String, of fields: [Field]) -> ArgumentHelp {
        guard let field = fields.first(where: { $0.name == name }) else { preconditionFailure("no field \(name)") }
        let isTime = ["since", "until"].contains(name)
        return ArgumentHelp(
            "\(field.meaning)\(field.kind == .texts ? " Repeatable." : "")", valueName: isTime ? "time" : nil)
    }
}

extension QueueJobs {
    /// Reports that no job matches.
    /// - Throws: an exit code, if the filter names a job.
    static func reportNothing(_ filter: JobFilter, looked: Int, queues: Int) throws {
        Terminal.note(filter.nothingFound(looked: looked, queues: queues) + "\n")
        if !filter.ids.isEmpty || !filter.keys.isEmpty { throw ExitCode(1) }
    }
}
