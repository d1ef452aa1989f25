import NIOCore
import PushQueue

/// The values that the parts of a queue's consumer share: the lane, the queue, its Redis, and the state that all workers share. It also
/// treats failed requests.
final class QueueLink {
    /// The kinds of requests that a reachable Redis may refuse.
    enum Request: String, CaseIterable {
        case claims, settlements, reservations, reclaims
        case newest = "questions about the newest jobs"
        case waits = "waits for jobs"
        case turns = "turns within limited rates"
        /// All queues share one set of invalid tokens.
        case invalidTokens = "invalid tokens"
    }

    let lane: LaneContext
    let queue: QueueContext
    let store: any QueueStore
    let fleet: Fleet
    let refusals: Refusals<Request>
    var window: ClaimWindow

    init(_ queue: QueueContext, store: any QueueStore, fleet: Fleet, lane: LaneContext) {
        self.lane = lane
        self.queue = queue
        self.store = store
        self.fleet = fleet
        window = ClaimWindow(polls: lane.polls)
        refusals = Refusals(lane, queue: queue.name, logger: queue.logger) { [name = queue.name] request in
            request == .invalidTokens ? request.rawValue : "\(request.rawValue) of the queue \(name)"
        }
    }

    /// True while Redis can be asked on behalf of jobs.
    var canAsk: Bool { store.isReady && lane.isWorking }

    /// Returns the value of an answer about claims; `nil` if there is none to use:
    ///
    /// - The lease was lost since the request, so the claims belong to other lanes now.
    /// - The connection was lost. The consumer repeats all requests when it is restored.
    /// - Redis refused the request. `refused` must repeat it after a pause.
    /// - Parameters:
    ///   - generation: the generation of the lease at the time of the request.
    ///   - refused: called for a refused request, to repeat it; see ``LaneContext/afterRefusal(_:)``. Does not escape, so that an answer
    ///     allocates no closure.
    func value<Value>(
        of result: Result<Value, QueueFailure>, to request: Request, of generation: Int,
        refused: () -> Void
    ) -> Value? {
        guard generation == queue.generation else { return nil }
        switch result {
        case .success(let value):
            refusals.recordAcceptance(request)
            return value
        case .failure(let failure):
            guard failure.isAnswer else { return nil }
            refusals.recordRefusal(request, failure)
            refused()
            return nil
        }
    }

    /// Logs the eviction of dead letters. Their jobs are lost permanently.
    func logEvictions(_ count: Int) {
        guard count > 0 else { return }
        lane.logThrottled(
            .error, "dead_letters_evicted", "evicted dead letters: too many, too large in total, or too old",
            kind: "evicted \(queue.name)", count: count, logger: queue.logger)
    }

    /// Counts and logs notifications that became dead letters because they had no attempt left.
    func record(_ exhausted: QueueConnection.Settled.Exhausted) {
        let reason = Reason(.attemptsExhausted)
        lane.metrics.count(
            .ended(.dead), app: lane.apps.firstIndex { $0.name == exhausted.app }, queue: queue.id.index,
            exhausted.notifications, reason)
        lane.metrics.count(.ended(.dead), queue: queue.id.index)
        lane.logThrottled(
            .warning, "dead_letter", "moved jobs to dead letters",
            kind: "dead \(queue.name) \(exhausted.app) \(reason.code.text)", count: exhausted.notifications,
            metadata: ["reason": "\(reason.code.text)", "queue": "\(queue.name)", "app": "\(exhausted.app)"])
    }

    // MARK: Waking

    /// Schedules a claim for the due time of a retry, on this lane or on the worker's polling lane.
    func wake(at time: NIODeadline) {
        guard window.polls else { return lane.callbacks.due(queue.id, time) }
        window.wake(at: time)
        wakeWhenDue()
    }

    /// Schedules the next claim if it is due before the lane's next tick.
    func wakeWhenDue() {
        let due = window.nextClaim
        guard due - lane.now < .seconds(1) else { return }
        lane.eventLoop.assumeIsolated().scheduleTask(deadline: due) { [self] in lane.schedulePump() }
    }

    // MARK: Guards of campaigns

    /// Logs that the guard of a campaign has paused it in this queue, and writes an entry of the audit log.
    func record(_ stopped: StoppedCampaign) {
        queue.logger.error(
            "the guard of a campaign has paused it",
            metadata: [
                "event": "campaign_stopped", "campaign": "\(stopped.campaign)", "reason": "\(stopped.reason)",
            ])
        fleet.store.guardAudit.record(stopped) { [queue] result in
            guard case .failure(let failure) = result else { return }
            queue.logger.warning(
                "the pause of a campaign is missing in the audit log",
                metadata: ["event": "audit_failed", "campaign": "\(stopped.campaign)", "error": "\(failure)"])
        }
    }

    /// Pauses a campaign in this queue, because its guard has paused it in another queue. If that fails, the guard in this queue still
    /// compares its own counters.
    func stop(_ stopped: StoppedCampaign) {
        store.stop(stopped) { [queue] result in
            guard case .failure(let failure) = result else { return }
            queue.logger.warning(
                "a campaign was not paused with its part in another queue",
                metadata: ["event": "campaign_stop_failed", "campaign": "\(stopped.campaign)", "error": "\(failure)"])
        }
    }
}
