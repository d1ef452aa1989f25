import NIOCore
import PushQueue

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
            queue.awaitingInvalidTokens += 1
        } else {
            queue.settle(jobs[index])
        }
        queue.settlementGrew()
    }

    /// Writes tokens to the invalid set; only when it has them are their jobs settled.
    func writeInvalidTokens() {
        guard !awaitingInvalidTokens.isEmpty, writingInvalidTokens.isEmpty, invalidTokens?.isReady == true else {
            return
        }
        let batch = awaitingInvalidTokens
        writingInvalidTokens = batch
        awaitingInvalidTokens = []
        invalidTokens?.add(batch.flatMap { $0.tally?.invalidTokens ?? [] }) { [self] result in
            writingInvalidTokens = []
            switch result {
            case .success:
                for entry in batch {
                    let queue = queues[entry.queue]
                    queue.awaitingInvalidTokens -= 1
                    if entry.generation == queue.generation { queue.settle(entry) } else { counters.lostClaims += 1 }
                }
                for queue in queues { queue.settlementGrew() }
                if phase == .draining { schedulePump() }
            case .failure(let error):
                awaitingInvalidTokens = batch + awaitingInvalidTokens
                if error.isAnswer {
                    incident("Redis did not take invalid tokens; they are tried again: \(error)", key: "invalid")
                }
            }
        }
    }
}
