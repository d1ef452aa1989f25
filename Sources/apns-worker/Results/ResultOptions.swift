import ArgumentParser
import Operations
import PushJob
import PushQueue

struct ResultOptions: ParsableArguments {
    @Option(help: .field("id", of: Self.fields)) var id: [String] = []
    @Option(help: .field("token", of: Self.fields)) var token: [String] = []
    @Option(help: .field("outcome", of: Self.fields)) var outcome: [String] = []
    @Option(help: .field("reason", of: Self.fields)) var reason: [String] = []
    @Option(help: .field("app", of: Self.fields)) var app: [String] = []
    @Option(help: .field("campaign", of: Self.fields)) var campaign: [String] = []
    @Option(help: .field("fair", of: Self.fields)) var fair: [String] = []
    @Option(help: .field("label", of: Self.fields)) var label: [String] = []
    @Option(help: .field("event", of: Self.fields)) var event: [String] = []
    @Option(help: .field("attempt", of: Self.fields)) var attempt: Int?
    @Option(help: .field("since", of: Self.fields)) var since: String?
    @Option(help: .field("until", of: Self.fields)) var until: String?

    private static let fields = ResultFilter.fields + Field.range("Results")

    func validate() throws {
        _ = try filter()
        _ = try period(now: Moment.now)
    }

    private var fields: Fields {
        var fields = Fields(refusesEmpty: true)
        for (name, values) in [
            ("id", id), ("token", token), ("outcome", outcome), ("reason", reason), ("app", app),
            ("campaign", campaign),
            ("fair", fair), ("label", label), ("event", event),
        ] { fields.append(name, values) }
        for (name, value) in [("attempt", attempt.map(String.init)), ("since", since), ("until", until)] {
            fields.append(name, value)
        }
        return fields
    }

    func filter() throws -> ResultFilter { try readingFlags { () throws(FieldMistake) in try ResultFilter(fields) } }

    /// Returns the period in milliseconds since 1970.
    func period(now: Int64) throws -> (since: Int64?, until: Int64?) {
        try readingFlags { () throws(FieldMistake) in try fields.range(now: now) }
    }
}
