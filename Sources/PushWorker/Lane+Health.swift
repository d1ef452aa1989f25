import Logging
import NIOCore

/// Whether the lane can do its work.
extension Lane {
    /// What keeps it from that, a sentence each.
    var problems: [String] {
        var problems: [String] = []
        if phase == .draining || phase == .stopped { problems.append("the worker is draining") }
        problems += queues.compactMap(\.problem)
        // As long as one app can send there is work to do; the others' jobs are put off.
        let apps = apps.map(\.problem)
        if !apps.contains(nil) { problems += apps.compactMap { $0 } }
        return problems
    }

    /// Tells of a change that has lasted for a moment.
    func tellOfReadiness(now: NIODeadline) {
        let problems = problems
        switch readiness.update(isReady: problems.isEmpty || phase != .running, now: now) {
        case .lost:
            logger.warning("not ready: \(problems.joined(separator: "; "))")
        case .regained(let after):
            let seconds = Double(after.nanoseconds / 1_000_000) / 1000
            logger.notice("ready again", metadata: ["after": "\(seconds) s"])
        case nil: break
        }
    }

    /// Whether the lane can do its work now. From anywhere.
    func health() -> EventLoopFuture<WorkerHealth> { eventLoop.submit { WorkerHealth(problems: self.problems) } }
}

extension QueueLane {
    /// What keeps the lane from working on the queue.
    var problem: String? {
        if !client.isReady { return "Redis cannot be reached for the queue \(keys.queue)" }
        if let refusal { return "Redis refuses claims of the queue \(keys.queue): \(refusal)" }
        return window.hasJoined ? nil : "there is no lease for the queue \(keys.queue) yet"
    }
}

extension AppLane {
    /// What keeps the app from sending.
    var problem: String? {
        if let reason = breaker.reason { return "the app \(configuration.name) is paused: \(reason)" }
        return pool.usableConnections > 0 ? nil : "the app \(configuration.name) has no connection to APNs"
    }
}
