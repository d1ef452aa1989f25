/// The bounds that keep a queue's memory in hand.
public struct QueueLimits: Sendable {
    /// A lane's lease in milliseconds: the time for which its claims stay its own without a renewal.
    public var lease = 30_000
    /// The lease of a lane that has no claims, in milliseconds: it protects nothing, so it is long and seldom renewed.
    public var idleLease: Int { 30 * lease }
    /// Larger jobs become dead letters before they travel, in bytes.
    public var maximumJobSize = 16 * 1024 * 1024
    /// A claim ends with the job with which its jobs reach this many bytes.
    public var maximumClaimSize = 1024 * 1024
    /// The maximum number of dead letters.
    public var maximumDeadLetters = 1_000_000
    /// The time for which dead letters are kept, in milliseconds.
    public var maximumDeadLetterAge = 90 * 86_400_000
    /// The maximum total length of the dead letters, in bytes.
    public var maximumDeadLetterBytes = 1 << 30
    /// Which results are kept for producers.
    public var results = ResultsKept.off
    /// How many results are kept, about: Redis drops the oldest in blocks.
    public var maximumResults = 100_000
    /// A job that was taken back from dead workers more often than this is poison.
    public var maximumReclaims = 5

    /// What the scripts are told: 0 where no results are kept.
    var resultsKept: Int { results == .off ? 0 : maximumResults }

    /// The defaults.
    public init() {}
}
