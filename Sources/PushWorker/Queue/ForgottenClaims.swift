import Logging
import NIOCore
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

/// Lists a lane's claims in Redis, and reads the jobs of forgotten ones.
final class ClaimRecovery {
    private let link: QueueLink
    private unowned let consumer: QueueConsumer
    private var forgotten = ForgottenClaims()
    private var isReading = false
    private var checkedAt: NIODeadline

    init(_ link: QueueLink, _ consumer: QueueConsumer) {
        self.link = link
        self.consumer = consumer
        checkedAt = link.lane.now
    }

    var isEmpty: Bool { forgotten.isEmpty }

    /// Discards the forgotten claims. They will be listed again, or belong to other lanes now.
    func reset() { forgotten = ForgottenClaims() }

    /// True if the claims must be listed again, because they were not for a third of a lease.
    var isDue: Bool {
        let interval = TimeAmount.milliseconds(Int64(link.queue.limits.lease) / 3)
        return link.store.isReady && forgotten.isEmpty && !isReading && link.lane.now - checkedAt > interval
    }

    /// Lists the lane's claims. Redis answers this and the settlements in the order of their requests, so a claim whose settlement was sent
    /// before is not mistaken for a forgotten one.
    func check() {
        checkedAt = link.lane.now
        link.store.claims { [self, generation = link.queue.generation] result in
            // Without an answer the connection was lost. The check is repeated when it is restored.
            guard generation == link.queue.generation, link.lane.isWorking, case .success(let listed) = result else {
                return
            }
            forgotten = consumer.forgotten(among: listed)
            guard !forgotten.isEmpty else { return }
            link.queue.logger.warning(
                "Redis has lost settlements that it had confirmed; processing their jobs again",
                metadata: ["event": "settlements_lost", "jobs": "\(forgotten.count)"])
            read()
        }
    }

    /// Reads as many jobs of forgotten claims as the lane has capacity for.
    func read() {
        guard !forgotten.isEmpty, !isReading, link.canAsk else { return }
        let batch = forgotten.next(capacity: consumer.capacity)
        guard !batch.isEmpty else { return }
        isReading = true
        link.store.bodies(of: batch) { [self, generation = link.queue.generation] result in
            isReading = false
            guard generation == link.queue.generation, link.lane.isWorking, case .success(let bodies) = result else {
                return
            }
            forgotten.recordRead(batch.count, bytes: bodies.reduce(0) { $0 + ($1?.readableBytes ?? 0) })
            for (claim, body) in zip(batch, bodies) {
                if let body { consumer.accept(ClaimedJob(body: body, claim: claim, isRecovered: true)) }
            }
            link.lane.schedulePump()
        }
    }
}
