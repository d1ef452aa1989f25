import ArgumentParser
import Operations
import PushJob
import PushQueue

/// The options that select results.
struct ResultOptions: ParsableArguments {
    @Option(help: "Results of the job with this ID. Repeatable.") var id: [String] = []

    @Option(help: "Results of this device token, in hex, or of this channel. Repeatable.") var token: [String] = []

    @Option(
        help: ArgumentHelp(
            "Results with this outcome: \(Outcome.allCases.map(\.rawValue).joined(separator: ", ")). Repeatable."))
    var outcome: [String] = []

    @Option(help: "Results with this reason, or prefix as in Bad*. Repeatable.") var reason: [String] = []

    @Option(help: "Results of this app. Repeatable.") var app: [String] = []

    @Option(help: "Results of this campaign. Repeatable.") var campaign: [String] = []

    @Option(help: "Events of this kind: campaign_finished. Repeatable.") var event: [String] = []

    @Option(help: "Results after this number of attempts; 0 for those never sent.") var attempt: Int?

    @Option(help: ArgumentHelp("Results since \(Fields.timeForm).", valueName: "time")) var since: String?

    @Option(help: ArgumentHelp("Results until \(Fields.timeForm).", valueName: "time")) var until: String?

    func validate() throws {
        let known = Outcome.allCases.map(\.rawValue)
        if let unknown = outcome.first(where: { !known.contains($0) }) {
            throw ValidationError("--outcome is one of \(known.joined(separator: ", ")), not \(unknown)")
        }
        if let unknown = event.first(where: { $0 != "campaign_finished" }) {
            throw ValidationError("--event is campaign_finished, not \(unknown.printable)")
        }
        if let part = token.first(where: TokenText.isShortened) {
            throw ValidationError(
                "--token is \(part.printable), the beginning of a token; a device token has 64 hex digits or more")
        }
        for (flag, values) in [("id", id), ("token", token), ("reason", reason), ("app", app), ("campaign", campaign)]
        where values.contains("") {
            throw ValidationError("--\(flag) is empty; set a value or omit it")
        }
        if let attempt, attempt < 0 { throw ValidationError("--attempt must be at least 0") }
        let (since, until) = (try since(now: Moment.now), try until(now: Moment.now))
        if let since, let until, since > until { throw ValidationError("--since is later than --until") }
    }

    /// The beginning of the period in milliseconds since 1970.
    func since(now: Int64) throws -> Int64? { try time("since", since, now) }

    /// The end of the period in milliseconds since 1970.
    func until(now: Int64) throws -> Int64? { try time("until", until, now) }

    private func time(_ name: String, _ text: String?, _ now: Int64) throws -> Int64? {
        guard let text else { return nil }
        return try readingFlags { () throws(FieldMistake) in try Fields([(name, text)]).time(name, now: now) }
    }

    var filter: ResultFilter {
        var filter = ResultFilter()
        filter.ids = Set(id.map { Name($0) })
        filter.tokens = ResultFilter.forms(of: token)
        filter.outcomes = Set(outcome)
        filter.reasons = reason
        filter.apps = Set(app.map { Name($0) })
        filter.campaigns = Set(campaign.map { Name($0) })
        filter.events = Set(event)
        filter.attempt = attempt
        return filter
    }
}
