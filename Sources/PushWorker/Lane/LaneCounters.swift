/// What a lane has done since it started. Notifications, where nothing else is said.
public struct LaneCounters: Sendable, Equatable {
    /// Claims that brought jobs.
    public var claimedJobs = 0
    /// Requests submitted, sent again or not.
    public var submitted = 0
    /// APNs took them.
    public var delivered = 0
    /// Their device token is not valid.
    public var invalid = 0
    /// Not sent, because their device token was known not to be valid.
    public var suppressed = 0
    /// Their expiration passed first.
    public var expired = 0
    /// Their answer never came, and the job asked for no second attempt.
    public var dropped = 0
    /// Put off with an attempt spent.
    public var retried = 0
    /// Put off with no attempt spent.
    public var parked = 0
    /// Held until their time.
    public var scheduled = 0
    /// Sent again at once.
    public var resent = 0
    /// Kept as dead letters.
    public var dead = 0
    /// Jobs that were not sent because another with their id was.
    public var duplicates = 0
    /// Sent, or to be sent, a second time although APNs may have taken the first.
    public var possibleDuplicates = 0
    /// Settlements that found that somebody else had taken the claim over.
    public var lostClaims = 0

    /// Those that have ended, whatever became of them.
    public var done: Int { delivered + invalid + suppressed + expired + dropped + dead }

    /// Nothing yet.
    public init() {}

    static func + (one: LaneCounters, other: LaneCounters) -> LaneCounters {
        var sum = one
        for member in Self.members { sum[keyPath: member] += other[keyPath: member] }
        return sum
    }

    private static let members: [WritableKeyPath<LaneCounters, Int> & Sendable] = [
        \.claimedJobs, \.submitted, \.delivered, \.invalid, \.suppressed, \.expired, \.dropped, \.retried, \.parked,
        \.scheduled,
        \.resent, \.dead, \.duplicates, \.possibleDuplicates, \.lostClaims,
    ]
}
