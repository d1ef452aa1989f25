import NIOCore
import PushQueue

/// What a lane has read of the queues for whoever scrapes.
struct QueueGaugeReadings {
    /// Redis is not asked more often, however often somebody scrapes.
    static let maximumAge = TimeAmount.seconds(10)

    /// What a queue holds.
    struct Queue: Sendable {
        var jobs: Int
        var retries: Int
        var claims: Int
        var dead: Int
        var deadBytes: Int
        var isPaused: Bool
        /// How long what comes next has waited, in milliseconds.
        var oldest: Int64
    }

    /// By the queues' places; those that could not be asked are not here.
    var queues: [Int: Queue] = [:]
    var invalidTokens: Int?
    fileprivate var heads: [Int: HeadWatch] = [:]
    fileprivate var readAt = NIODeadline.distantPast
    fileprivate var reading: EventLoopFuture<Void>?
}

extension Lane {
    /// Reads what the queues hold if what was read is old: only when somebody scrapes, and in the same pipeline as
    /// everything else, so that it costs nothing while nobody does and never holds up the work.
    /// - Returns: when it is read, or could not be.
    func readGauges() -> EventLoopFuture<Void> {
        if let reading = gauges.reading { return reading }
        let now = eventLoop.now
        guard now - gauges.readAt >= QueueGaugeReadings.maximumAge, phase == .running || phase == .draining else {
            return eventLoop.makeSucceededVoidFuture()
        }
        gauges.readAt = now
        let parts = queues.map { read($0) } + [readInvalidTokenCount()]
        let reading = EventLoopFuture.andAllComplete(parts, on: eventLoop)
        gauges.reading = reading
        reading.assumeIsolated().whenComplete { [self] _ in
            gauges.reading = nil
            // A Redis that was not there is asked again by the next who wants to know.
            if gauges.queues.isEmpty { gauges.readAt = .distantPast }
        }
        return reading
    }

    private func read(_ queue: QueueLane) -> EventLoopFuture<Void> {
        let done = eventLoop.makePromise(of: Void.self)
        queue.connection.gauges { [self] result in
            // What cannot be read is not shown; the lane tells of a Redis that does not answer.
            gauges.queues[queue.index] = (try? result.get()).map { reading in
                let head = reading.jobs > 0 ? reading.head ?? ByteBuffer() : nil
                let waited = gauges.heads[queue.index, default: HeadWatch()].saw(
                    head, enqueuedAt: reading.headEnqueuedAt(as: queue.format), now: reading.now)
                return QueueGaugeReadings.Queue(
                    jobs: reading.jobs, retries: reading.retries, claims: reading.claims, dead: reading.dead,
                    deadBytes: reading.deadBytes, isPaused: reading.isPaused, oldest: max(waited, reading.overdue))
            }
            done.succeed(())
        }
        return done.futureResult
    }

    private func readInvalidTokenCount() -> EventLoopFuture<Void> {
        let done = eventLoop.makePromise(of: Void.self)
        guard let invalidTokens else { return eventLoop.makeSucceededVoidFuture() }
        invalidTokens.count { [self] result in
            gauges.invalidTokens = try? result.get()
            done.succeed(())
        }
        return done.futureResult
    }
}
