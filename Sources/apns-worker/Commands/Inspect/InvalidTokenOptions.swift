import ArgumentParser
import Operations
import PushJob
import PushQueue

/// The options that select invalid tokens, which several commands share.
struct InvalidTokenOptions: ParsableArguments {
    @Option(help: .field("topic", of: InvalidTokenFilter.fields)) var topic: [String] = []
    @Option(help: .field("reason", of: InvalidTokenFilter.fields)) var reason: [String] = []
    @Option(help: .field("source", of: InvalidTokenFilter.fields)) var source: [String] = []
    @Option(help: .field("environment", of: InvalidTokenFilter.fields)) var environment: [String] = []
    @Option(help: .field("since", of: InvalidTokenFilter.fields)) var since: String?
    @Option(help: .field("until", of: InvalidTokenFilter.fields)) var until: String?

    var fields: Fields {
        var fields = Fields(refusesEmpty: true)
        for (name, values) in [
            ("topic", topic), ("reason", reason), ("source", source), ("environment", environment),
        ] { fields.append(name, values) }
        fields.append("since", since)
        fields.append("until", until)
        return fields
    }

    /// - Parameter now: the time from which durations count back.
    func filter(now: Int64) throws -> InvalidTokenFilter {
        try readingFlags { () throws(FieldMistake) in try InvalidTokenFilter(fields, now: now) }
    }
}
