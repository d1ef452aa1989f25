import PushQueue
import PushWorker

extension Settings {
    /// Everything that a worker needs to know.
    func worker(named name: String, simulated: SimulatedCredentials? = nil) throws -> WorkerConfiguration {
        var worker = WorkerConfiguration(
            redis: try redisTopology(), queues: try queues(), sharedKeys: sharedKeys,
            apps: try apps(simulated: simulated), workerName: name)
        worker.redisClient = try redisClient()
        worker.queueOrder = queueOrder()
        worker.lanes = number(.lanes) ?? 0
        worker.retry.base = number(.retryBase).map(Int64.init) ?? worker.retry.base
        worker.retry.cap = number(.retryCap).map(Int64.init) ?? worker.retry.cap
        worker.retry.maximumAttempts = number(.maxAttempts) ?? worker.retry.maximumAttempts
        worker.appPause.first = number(.pause).map(Int64.init) ?? worker.appPause.first
        worker.appPause.longest = number(.pauseCap).map(Int64.init) ?? worker.appPause.longest
        worker.invalidTokenAge = invalidTokenAge
        worker.drainTimeout = number(.drainTimeout) ?? worker.drainTimeout
        worker.summaryInterval = number(.logSummary) ?? worker.summaryInterval
        return worker
    }

    /// The time for which invalid tokens are kept, in milliseconds; 0 for ever.
    var invalidTokenAge: Int { (number(.invalidTokensDays) ?? 0) * Self.dayInMilliseconds }

    static let dayInMilliseconds = 86_400_000
}
