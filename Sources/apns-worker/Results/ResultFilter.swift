import APNS
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

    @Option(help: "Results after this number of attempts; 0 for those never sent.") var attempt: Int?

    @Option(help: ArgumentHelp("Results since \(Fields.timeForm).", valueName: "time")) var since: String?

    @Option(help: ArgumentHelp("Results until \(Fields.timeForm).", valueName: "time")) var until: String?

    func validate() throws {
        let known = Outcome.allCases.map(\.rawValue)
        if let unknown = outcome.first(where: { !known.contains($0) }) {
            throw ValidationError("--outcome is one of \(known.joined(separator: ", ")), not \(unknown)")
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
        // A result has the token as it was sent, or as the job has it if it is not valid.
        let tokens = token.map { text in (try? DeviceToken(text)).map { String(buffer: $0.hex) } ?? text }
        return ResultFilter(
            ids: Set(id), tokens: Set(tokens), outcomes: Set(outcome), reasons: reason, apps: Set(app),
            campaigns: Set(campaign), attempt: attempt)
    }
}

/// A filter for results by their fields. For each field that is given, one of its values must match.
struct ResultFilter: Equatable, Sendable {
    var ids: Set<String> = []
    var tokens: Set<String> = []
    var outcomes: Set<String> = []
    /// With a `*` at the end, a prefix.
    var reasons: [String] = []
    var apps: Set<String> = []
    var campaigns: Set<String> = []
    var attempt: Int?

    var isEmpty: Bool { self == ResultFilter() }

    /// True if it names jobs or devices, for which there should be results.
    var namesOne: Bool { !ids.isEmpty || !tokens.isEmpty }

    func matches(_ result: StoredResult) -> Bool {
        func has(_ name: String, _ wanted: Set<String>) -> Bool {
            wanted.isEmpty || result[name].map(wanted.contains) ?? false
        }
        guard has("id", ids), has("token", tokens), has("outcome", outcomes), has("app", apps),
            has("campaign", campaigns)
        else { return false }
        if let attempt, result["attempt"].flatMap({ Int($0) }) != attempt { return false }
        guard !reasons.isEmpty else { return true }
        let reason = result["reason"] ?? ""
        return reasons.contains { $0.hasSuffix("*") ? reason.hasPrefix($0.dropLast()) : reason == $0 }
    }
}
