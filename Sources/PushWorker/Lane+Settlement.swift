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
        } else if let tally = jobs[index].tally, !tally.invalidTokens.isEmpty {
            awaitingInvalidTokens.append(jobs[index])
            queue.awaitingInvalidTokens += tally.invalid
        } else {
            queue.settle(jobs[index])
        }
        queue.settlementGrew()
    }

    /// Tokens that are written at once; those of one job are not parted.
    private static let invalidTokensBatch = 2000

    /// Writes tokens to the invalid set; only when it has them are their jobs settled.
    func writeInvalidTokens() {
        guard !awaitingInvalidTokens.isEmpty, writingInvalidTokens.isEmpty, invalidTokens?.isReady == true,
            eventLoop.now >= invalidTokensNotBefore
        else { return }
        var tokens: [InvalidToken] = []
        let count = awaitingInvalidTokens.firstIndex { entry in
            tokens += entry.tally?.invalidTokens ?? []
            return tokens.count >= Self.invalidTokensBatch
        }
        writingInvalidTokens = Array(awaitingInvalidTokens.prefix(count.map { $0 + 1 } ?? awaitingInvalidTokens.count))
        awaitingInvalidTokens.removeFirst(writingInvalidTokens.count)
        invalidTokens?.add(tokens) { [self] result in
            let batch = writingInvalidTokens
            writingInvalidTokens = []
            switch result {
            case .success:
                for entry in batch {
                    let queue = queues[entry.queue]
                    queue.awaitingInvalidTokens -= entry.tally?.invalid ?? 0
                    if entry.generation == queue.generation { queue.settle(entry) } else { counters.lostClaims += 1 }
                }
                invalidTokensAccepted()
                for queue in queues { queue.settlementGrew() }
                writeInvalidTokens()
                if phase == .draining { schedulePump() }
            case .failure(let error):
                awaitingInvalidTokens = batch + awaitingInvalidTokens
                if error.isAnswer { invalidTokensRefused(error) }
            }
        }
    }

    private func invalidTokensRefused(_ error: RedisError) {
        invalidTokensRefusal = "\(error)"
        invalidTokensNotBefore = eventLoop.now + QueueLane.refusalPause
        guard troubles.began("invalid tokens", at: "\(index)") else { return }
        logger.error("Redis does not take invalid tokens: \(error)")
    }

    private func invalidTokensAccepted() {
        guard invalidTokensRefusal != nil else { return }
        invalidTokensRefusal = nil
        guard let after = troubles.ended("invalid tokens", at: "\(index)") else { return }
        logger.notice("Redis takes invalid tokens again", metadata: ["after": "\(after)"])
    }
}
