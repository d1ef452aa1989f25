import APNS
import NIOCore
import PushJob
import PushQueue
import Redis

/// What the lane counts for whoever scrapes.
extension Lane {
    /// Notes where the notifications of a job are counted, and since when the job waits to be sent.
    func prepareMetrics(of entry: inout JobEntry, _ job: Job, _ pushType: PushType, in queue: QueueLane) {
        entry.series = metrics.series(app: entry.app, queue: queue.index, pushType: pushType)
        // What was tried before has waited for other reasons than a full queue.
        guard metrics.takesTimes, job.envelope.attempt == 1 else { return }
        entry.queuedSince = max(job.enqueuedAt ?? entry.firstSeen, job.sendAt ?? 0)
    }

    /// One of a job's notifications was submitted for the first time.
    func noteSubmission(of index: Int) {
        if metrics.takesTimes { metrics.submitted(queue: jobs[index].queue, since: jobs[index].queuedSince) }
    }

    /// A request has ended.
    func noteAnswer(_ tag: Int, _ result: RequestResult, app: Int) {
        guard metrics.takesTimes, result.isAnswer else { return }
        metrics.sendTimes.record(metrics.time() &- flights[tag].submittedAt, row: app)
    }

    /// Counts notifications of an accepted job that were not plainly delivered.
    func count(_ outcome: NotificationOutcome, of index: Int, _ count: Int = 1, reason: String) {
        metrics.count(outcome, jobs[index].series, count, reason: reason)
    }

    /// Counts a job that was never accepted, and its notifications.
    /// - Parameter job: `nil` where it could not be read.
    func count(
        _ outcome: NotificationOutcome, _ jobOutcome: JobOutcome, _ job: Job?, in queue: QueueLane, reason: String
    ) {
        // A job that no app takes is counted under none.
        let app = job.flatMap { try? router.route($0) }
        metrics.count(outcome, app: app, queue: queue.index, job?.tokenCount ?? 1, reason: reason)
        metrics.count(jobOutcome, queue: queue.index)
    }

    /// A connection to Redis has come or gone.
    func countRedis(_ state: RedisClient.State) {
        switch state {
        case .ready: metrics.redisConnections += 1
        case .disconnected: metrics.redisFailures += 1
        case .closed: break
        }
    }
}

extension JobTally {
    /// What became of the job.
    /// - Parameter isAlone: whether it has one notification.
    func jobOutcome(isAlone: Bool) -> JobOutcome {
        if let retry { return retry.spendsAttempt ? .retried : .parked }
        guard kinds + (dead.isEmpty ? 0 : 1) == 1 || isAlone else { return .mixed }
        if !dead.isEmpty { return .dead }
        return switch ending {
        case .delivered: .delivered
        case .invalid: .invalidToken
        case .suppressed: .suppressed
        case .expired: .expired
        case .dropped: .dropped
        case .fannedOut: .mixed
        }
    }
}

extension RequestResult {
    /// Whether APNs answered.
    fileprivate var isAnswer: Bool {
        switch self {
        case .response, .confirmed, .refused: true
        case .notProcessed, .uncertain: false
        }
    }
}
