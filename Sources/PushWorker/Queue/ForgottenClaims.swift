import PushQueue

/// Claims that Redis has for a lane, and that the lane does not know. No I/O.
///
/// After a failover, Redis can return to a slightly older state. The same can happen after a crash of a server that does not fsync each
/// command. Settlements that Redis had confirmed are then lost, and their claims exist again. Other lanes do not reclaim these, because
/// their lane is alive. So the lane lists its claims periodically, and whenever Redis returns. It handles unknown claims like new ones.
/// Their notifications may be sent twice, and are counted as possible duplicates.
struct ForgottenClaims {
    /// The maximum number of jobs per read.
    private static let maximumBatch = 256
    /// The maximum number of bytes per read, estimated from the jobs already read.
    private static let maximumBytes = 1 << 20

    private var claims: ArraySlice<ClaimID> = []
    private var batch = 4

    var isEmpty: Bool { claims.isEmpty }
    var count: Int { claims.count }

    /// Keeps the listed claims that the lane does not know.
    /// - Parameter forEachKnown: calls a function with each claim that the lane works on, or has settled without a confirmation.
    init(
        listed: [ClaimID] = [], window: ClaimWindow = ClaimWindow(),
        forEachKnown: ((ClaimID) -> Void) -> Void = { _ in }
    ) {
        var unknown = Set(listed.lazy.filter { window.wasAnswered($0.number) })
        if !unknown.isEmpty { forEachKnown { unknown.remove($0) } }
        claims = unknown.sorted { ($0.number, $0.stamp) < ($1.number, $1.stamp) }[...]
    }

    /// The largest claim number; 0 without claims.
    var largestNumber: Int { claims.last?.number ?? 0 }

    func next(capacity: Int) -> [ClaimID] { Array(claims.prefix(max(0, min(batch, capacity)))) }

    /// Records that the first claims were read.
    /// - Parameter bytes: the total size of their jobs.
    mutating func recordRead(_ count: Int, bytes: Int) {
        claims = claims.dropFirst(count)
        let mean = max(1, bytes / max(1, count))
        batch = max(1, min(Self.maximumBatch, 2 * batch, Self.maximumBytes / mean))
    }
}
