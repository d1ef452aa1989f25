import Redis

/// Which dead letters somebody means: those that fit one value of each kind that is given.
public struct DeadLetterFilter: Sendable, Equatable {
    /// Reasons such as `BadPayload`; with a `*` at the end, how they begin.
    public var reasons: [String] = []
    /// Keys of letters, as ``DeadLetters/Listed/key``.
    public var keys: [String] = []
    /// Ids of jobs.
    public var ids: [String] = []
    /// Names of apps.
    public var apps: [String] = []
    /// Names of campaigns.
    public var campaigns: [String] = []
    /// Device tokens in hex, however they are written.
    public var tokens: [String] = []
    /// Parts of what is said of the error, in either case.
    public var errors: [String] = []
    /// Letters that are at least so many seconds old.
    public var olderThan: Int64?
    /// Letters that are not older than so many seconds.
    public var newerThan: Int64?

    /// All letters.
    public init() {}

    /// True if it means all letters.
    public var isEmpty: Bool { self == DeadLetterFilter() }

    /// The script's names and values.
    func append(to command: inout RedisCommand) {
        for (name, values) in [
            ("reason", reasons), ("key", keys), ("id", ids), ("app", apps), ("campaign", campaigns),
            ("token", tokens), ("error", errors),
        ] {
            for value in values {
                command.append(name)
                command.append(value)
            }
        }
        for (name, seconds) in [("older", olderThan), ("newer", newerThan)] {
            guard let seconds else { continue }
            command.append(name)
            command.append("\(seconds)s")
        }
    }
}
