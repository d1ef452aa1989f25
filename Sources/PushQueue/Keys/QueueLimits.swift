/// A queue's leases, and the limits that bound its memory.
public struct QueueLimits: Sendable {
    /// A lane's lease in milliseconds: its claims stay its own for this time without a renewal.
    public var lease = 30_000
    /// The lease of a lane that has no claims, in milliseconds: it protects nothing, so it is long and seldom renewed.
    public var idleLease: Int { 30 * lease }
    /// A lane reclaims from others only after it has renewed its lease without a gap for this time, in milliseconds. After an outage, the
    /// other lanes return in less time.
    public var steadyTime = 15_000
    /// The maximum size of a job in bytes. A claim makes larger jobs dead letters and does not return them.
    public var maximumJobSize = 16 * 1024 * 1024
    /// A claim ends with the job that brings it to this size, in bytes.
    public var maximumClaimSize = 1024 * 1024
    public var maximumDeadLetters = 1_000_000
    /// The maximum age of dead letters, in milliseconds.
    public var maximumDeadLetterAge = 90 * 86_400_000
    /// The maximum total length of the dead letters, in bytes.
    public var maximumDeadLetterBytes = 1 << 30
    public var results = ResultsKept.failures
    /// The approximate number of results that are kept: Redis drops the oldest in blocks.
    public var maximumResults = 100_000
    /// The approximate maximum age of results, in milliseconds; 0 for no limit.
    public var maximumResultAge = 30 * 86_400_000
    /// The number of times that a job can be reclaimed from expired lanes. The next time, it becomes a dead letter as poison.
    public var maximumReclaims = 5

    /// The argument of scripts that write results themselves: 0 if none are kept.
    public var resultsLimit: Int { results == .off ? 0 : maximumResults }

    public init() {}
}

public enum ResultsKept: String, CaseIterable, Sendable {
    case all
    /// The results of notifications that were not delivered.
    case failures
    case off

    /// Returns the kinds of results that the queues do not keep, as clauses.
    /// - Parameter kept: the results that each queue keeps; `nil` if it is not known.
    public static func gaps(_ kept: [String: ResultsKept?]) -> [String] {
        let kinds: [(kept: ResultsKept?, gap: String)] = [
            (.failures, "deliveries are not kept (`results: failures`)"),
            (.off, "no results are kept (`results: off`)"),
            (nil, "no worker has recorded yet which results are kept"),
        ]
        return kinds.compactMap { kind in
            let queues = kept.filter { $0.value == kind.kept }.map(\.key).sorted()
            guard !queues.isEmpty else { return nil }
            // The name of the only queue is not needed.
            return kept.count == 1 ? kind.gap : "\(kind.gap) in \(queues.joined(separator: ", "))"
        }
    }

    /// Returns true if the results of notifications that ended in this way are kept.
    public func includes(_ outcome: Outcome) -> Bool {
        switch self {
        case .all: true
        case .failures: outcome != .delivered
        case .off: false
        }
    }
}
