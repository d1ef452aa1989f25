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

    @Option(help: ArgumentHelp("Tokens that became invalid since \(TimeOption.form).", valueName: "time"))
    var since: String?

    @Option(help: ArgumentHelp("Tokens that became invalid until \(TimeOption.form).", valueName: "time"))
    var until: String?

    // The former name of --since, for durations.
    @Option(help: .hidden) var newerThan: String?

    func filter(now: Int64) throws -> InvalidTokenFilter {
        if let wrong = source.first(where: { InvalidToken.Source(rawValue: $0) == nil }) {
            throw ValidationError("--source must be apns, gateway, feedback or import, not \(wrong)")
        }
        var earliest: Int64?
        if let age = try DeadLetterOptions.age(newerThan, "--newer-than") { earliest = now - age * 1000 }
        if let time = try TimeOption.milliseconds(since, "--since", now: now) {
            earliest = max(earliest ?? time, time)
        }
        return InvalidTokenFilter(
            topics: topic, reasons: reason, sources: source, environments: environment, earliest: earliest,
            latest: try TimeOption.milliseconds(until, "--until", now: now))
    }
}
