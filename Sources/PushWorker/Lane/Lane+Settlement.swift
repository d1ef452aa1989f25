import Logging
import NIOCore
import PushQueue
import Redis

/// What becomes of a job when its notifications have ended.
extension Lane {
    /// Settles a job if all its notifications have ended.
    func settleIfEnded(_ index: Int) {
        guard jobs[index].open == 0 else { return }
        defer { jobs.release(index) }
        let queue = queues[jobs[index].queue]
        guard jobs[index].generation == queue.generation else {
            counters.lostClaims += 1
            return
        }
        guard !jobs[index].isCutShort else { return }
        if jobs[index].tally == nil {
            queue.settlement.end(jobs[index].claim, .delivered)
            metrics.count(.delivered, queue: queue.index)
        } else if let tally = jobs[index].tally, !tally.invalidTokens.isEmpty {
            awaitingInvalidTokens.append(jobs[index])
            queue.awaitingInvalidTokens += tally.invalid
        } else {
            queue.settle(jobs[index])
        }
        queue.settlementGrew()
    }
}
