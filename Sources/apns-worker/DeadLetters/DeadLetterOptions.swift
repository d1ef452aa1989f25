import ArgumentParser
import Operations
import PushJob
import PushQueue

/// The options that select dead letters, which several commands share.
struct DeadLetterOptions: ParsableArguments {
    @Option(help: "Dead letters with this reason, or prefix as in Bad*. Repeatable.")
    var reason: [String] = []

    @Option(help: "Dead letter with this key, as `dead list` shows it. Repeatable.")
    var key: [String] = []

    @Option(help: "Dead letters of the job with this ID. Repeatable.") var id: [String] = []

    @Option(help: "Dead letters of jobs for this app. Repeatable.")
    var app: [String] = []

    @Option(help: "Dead letters of jobs of this campaign. Repeatable.")
    var campaign: [String] = []

    @Option(help: "Dead letters of jobs for this device token, in hex. Repeatable.")
    var token: [String] = []

    @Option(
        name: .customLong("error"),
        help: "Dead letters whose error contains this text, ignoring case, or whose status is this number.")
    var errorText: [String] = []

    @Option(help: ArgumentHelp("Dead letters since \(TimeOption.form).", valueName: "time"))
    var since: String?

    @Option(help: ArgumentHelp("Dead letters until \(TimeOption.form).", valueName: "time"))
    var until: String?

    // The former names of --until and --since, which accept only durations.
    @Option(help: .hidden) var olderThan: String?
    @Option(help: .hidden) var newerThan: String?

    func filter() throws -> DeadLetterFilter {
        var filter = DeadLetterFilter()
        for (flag, values) in [
            ("reason", reason), ("key", key), ("id", id), ("app", app), ("campaign", campaign), ("token", token),
            ("error", errorText),
        ] where values.contains("") {
            throw ValidationError("--\(flag) is empty; set a value or omit it")
        }
        filter.reasons = reason
        filter.keys = try key.map(Self.key)
        filter.ids = id
        filter.apps = app
        filter.campaigns = campaign
        filter.tokens = token
        filter.errors = errorText
        filter.olderThan = try Self.age(olderThan, "--older-than")
        filter.newerThan = try Self.age(newerThan, "--newer-than")
        for (flag, isGiven) in [
            ("--since", newerThan == nil || since == nil), ("--until", olderThan == nil || until == nil),
        ]
        where !isGiven {
            throw ValidationError("\(flag) and its former name cannot be combined")
        }
        let now = Moment.now
        if let time = try TimeOption.milliseconds(since, "--since", now: now) {
            filter.newerThan = max(0, (now - time) / 1000)
        }
        if let time = try TimeOption.milliseconds(until, "--until", now: now) {
            filter.olderThan = max(0, (now - time) / 1000)
        }
        if let older = filter.olderThan, let newer = filter.newerThan, older > newer {
            throw ValidationError("no dead letter can match, because --until is before --since")
        }
        return filter
    }

    static func key(_ text: String) throws -> String { try key(text, of: "a dead letter", from: "dead list") }

    /// Reads a key as shown in a list.
    static func key(_ text: String, of what: String, from list: String) throws -> String {
        guard text.utf8.count == 10, text.isHexadecimal else {
            throw ValidationError("the key of \(what) is ten hex digits, as `apns-worker \(list)` shows it")
        }
        return text.lowercased()
    }

    static func age(_ text: String?, _ flag: String) throws -> Int64? {
        guard let text else { return nil }
        guard let seconds = JobDuration.seconds(text) else {
            throw ValidationError("\(flag) must be a duration such as 45s, 30m, 1h30m, 7d or 2w")
        }
        return seconds
    }

    static func check(limit: Int?) throws {
        if let limit, limit < 1 { throw ValidationError("--limit must be at least 1") }
    }

    /// Checks a number per second.
    static func check(rate: Int?, _ flag: String = "--rate") throws {
        if let rate, !(1...1_000_000).contains(rate) { throw ValidationError("\(flag) must be 1 to 1000000") }
    }
}
