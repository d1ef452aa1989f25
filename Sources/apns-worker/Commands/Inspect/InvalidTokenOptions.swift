import ArgumentParser
import Operations
import PushJob
import PushQueue

/// The options that select invalid tokens, which several commands share.
struct InvalidTokenOptions: ParsableArguments {
    @Option(help: "Tokens that are invalid for this topic. Repeatable.") var topic: [String] = []

    @Option(help: "Tokens that are invalid for this reason, such as BadDeviceToken. Repeatable.")
    var reason: [String] = []

    @Option(help: "Tokens reported by this source: apns, gateway, feedback or import. Repeatable.") var source:
        [String] = []

    @Option(help: "Tokens of this environment: production, sandbox, or the name of another server. Repeatable.")
    var environment: [String] = []

    @Option(help: ArgumentHelp("Tokens that became invalid since \(Fields.timeForm).", valueName: "time"))
    var since: String?

    @Option(help: ArgumentHelp("Tokens that became invalid until such a time.", valueName: "time")) var until: String?

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
