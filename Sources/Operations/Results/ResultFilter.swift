import PrintableText
import PushQueue

/// A filter for results by their fields. For each field that is given, one of its values must match.
package struct ResultFilter: Equatable, Sendable {
    package var ids: Set<Name> = []
    package var tokens: Set<String> = []
    package var outcomes: Set<String> = []
    /// A `*` at the end matches any ending.
    package var reasons: [String] = []
    package var apps: Set<Name> = []
    package var campaigns: Set<Name> = []
    package var fair: Set<Name> = []
    /// Labels, such as `country=de`.
    package var labels: Set<Name> = []
    /// Kinds of results that are not about a notification, such as `campaign_finished`.
    package var events: Set<String> = []
    package var attempt: Int?

    package init() {}

    package static let fields = [
        Field("id", .texts, "Results of the job with this ID."),
        Field("token", .texts, "Results of this device token, in hex, or of this channel."),
        Field(
            "outcome", .texts,
            "Results with this outcome: \(Outcome.allCases.map(\.rawValue).joined(separator: ", ")).",
            words: Outcome.allCases.map(\.rawValue)),
        Field("reason", .texts, "Results with this reason, or prefix as in Bad*."),
        Field("app", .texts, "Results of this app."), Field("campaign", .texts, "Results of this campaign."),
        Field("fair", .texts, "Results of jobs with this `fair`."),
        Field("label", .texts, "Results of jobs with this label, as in country=de."),
        Field("event", .texts, "Events of this kind: campaign_finished.", words: ["campaign_finished"]),
        Field("attempt", .number, "Results after this number of attempts; 0 for notifications that were never sent."),
    ]

    package init(_ fields: Fields) throws(FieldMistake) {
        self.init()
        outcomes = Set(try fields.texts("outcome"))
        let known = Outcome.allCases.map(\.rawValue)
        if let wrong = outcomes.first(where: { !known.contains($0) }) {
            throw FieldMistake {
                "\($0("outcome")) is \(wrong.printable); it must be \(known.joined(separator: ", "))"
            }
        }
        ids = Set(try fields.names("id"))
        tokens = Self.forms(of: try fields.tokens())
        reasons = try fields.texts("reason")
        apps = Set(try fields.names("app"))
        campaigns = Set(try fields.names("campaign"))
        fair = Set(try fields.names("fair"))
        labels = Set(try fields.labels().map { Name($0) })
        events = Set(try fields.texts("event"))
        if let wrong = events.first(where: { $0 != "campaign_finished" }) {
            throw FieldMistake { "\($0("event")) is \(wrong.printable); it must be campaign_finished" }
        }
        attempt = try fields.number("attempt", 0...Int(Int32.max))
    }

    /// Returns tokens in the forms that results can have: lower-case hex, or the text of the job if it is not a valid token.
    package static func forms(of tokens: [String]) -> Set<String> {
        Set(tokens.flatMap { [$0, TokenText.normalized($0)] })
    }

    package var isEmpty: Bool { self == ResultFilter() }

    /// True if the filter names jobs or devices, so that at least one result is expected.
    package var namesOne: Bool { !ids.isEmpty || !tokens.isEmpty }

    package func matches(_ result: StoredResult) -> Bool {
        func has(_ name: String, _ wanted: Set<String>) -> Bool {
            wanted.isEmpty || result[name].map(wanted.contains) ?? false
        }
        func names(_ name: String, _ wanted: Set<Name>) -> Bool {
            wanted.isEmpty || result[name].map { wanted.contains(Name($0)) } ?? false
        }
        guard names("id", ids), has("token", tokens), has("outcome", outcomes), names("app", apps),
            names("campaign", campaigns), names("fair", fair), has("event", events),
            labels.isEmpty || result.labels.contains(where: { labels.contains(Name("\($0.key)=\($0.value)")) })
        else { return false }
        if let attempt, result["attempt"].flatMap({ Int($0) }) != attempt { return false }
        guard !reasons.isEmpty else { return true }
        let reason = result["reason"] ?? ""
        return reasons.contains { $0.matches(reason: reason) }
    }
}
