import ArgumentParser
import PushJob
import PushQueue

/// Which dead letters a command is about: the same flags for each.
struct DeadLetterOptions: ParsableArguments {
    @Option(help: "Letters of this reason; with a * at the end, of all that begin so. More than once for several.")
    var reason: [String] = []

    @Option(help: "The letter with this key, as `dead list` shows it; more than once for several.")
    var key: [String] = []

    @Option(help: "Letters of the job with this id; more than once for several.") var id: [String] = []

    @Option(help: "Letters of jobs that were to be sent through this app; more than once for several.")
    var app: [String] = []

    @Option(help: "Letters of jobs for this device token, in hex; more than once for several.")
    var token: [String] = []

    @Option(
        name: .customLong("error"),
        help: "Letters whose error contains this text, in either case, or whose status is this number.")
    var errorText: [String] = []

    @Option(help: "Letters that are at least so old, such as 45s, 30m, 1h30m or 7d.") var olderThan: String?

    @Option(help: "Letters that are not older than that.") var newerThan: String?

    func filter() throws -> DeadLetterFilter {
        var filter = DeadLetterFilter()
        for (flag, values) in [
            ("reason", reason), ("key", key), ("id", id), ("app", app), ("token", token), ("error", errorText),
        ] where values.contains("") {
            throw ValidationError("--\(flag) is empty: say which, or leave it out")
        }
        filter.reasons = reason
        filter.keys = try key.map(Self.key)
        filter.ids = id
        filter.apps = app
        filter.tokens = token
        filter.errors = errorText
        filter.olderThan = try Self.age(olderThan, "--older-than")
        filter.newerThan = try Self.age(newerThan, "--newer-than")
        if let older = filter.olderThan, let newer = filter.newerThan, older > newer {
            throw ValidationError("no letter is older than \(olderThan ?? "") and newer than \(newerThan ?? "")")
        }
        return filter
    }

    static func key(_ text: String) throws -> String {
        guard text.utf8.count == 10, text.allSatisfy(\.isHexDigit) else {
            throw ValidationError("a letter's key is ten hex digits, as `apns-worker dead list` shows them")
        }
        return text.lowercased()
    }

    static func age(_ text: String?, _ flag: String) throws -> Int64? {
        guard let text else { return nil }
        guard let seconds = JobDuration.seconds(text) else {
            throw ValidationError("\(flag) is a duration such as 45s, 30m, 1h30m, 7d or 2w")
        }
        return seconds
    }

    static func check(limit: Int?) throws {
        if let limit, limit < 1 { throw ValidationError("--limit is a number from 1") }
    }
}
