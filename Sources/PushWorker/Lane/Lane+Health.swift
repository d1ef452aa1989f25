import Logging
import NIOCore
import PushQueue
import Redis

/// Whether the lane can do its work.
extension Lane {
    /// What keeps it from that, a sentence each.
    var problems: [String] {
        var problems: [String] = []
        if phase == .starting { problems.append("the worker is starting") }
        if phase == .draining || phase == .stopped { problems.append("the worker is draining") }
        if isQuiet, phase == .running { problems.append("the worker is quiet: it takes no jobs until it is told to") }
        return problems + obstacles.map(\.reason)
    }

    /// The problems with Redis and APNs only.
    var obstacles: [WorkerReport.Obstacle] {
        var obstacles = queues.compactMap(\.problem).map { WorkerReport.Obstacle($0) }
        if let invalidTokensRefusal {
            obstacles.append(.init("Redis does not take invalid tokens: \(invalidTokensRefusal)"))
        }
        // As long as one app can send there is work to do; the others' jobs are put off.
        let apps = apps.filter { !$0.isLeaving }.map { ($0.configuration.name, $0.problem) }
        if !apps.contains(where: { $0.1 == nil }) {
            obstacles += apps.compactMap { name, problem in problem.map { .init($0, app: name) } }
        }
        return obstacles
    }

    /// Tells of a change that has lasted for a moment.
    func tellOfReadiness(now: NIODeadline) {
        let problems = problems
        note(problems, now: now)
        switch readiness.update(isReady: problems.isEmpty || phase != .running || isQuiet, now: now) {
        case .lost:
            for queue in queues { queue.tellSoon() }
            trouble(.warning, "not ready: \(problems.joined(separator: "; "))", "ready", at: "\(index)")
        case .regained:
            for queue in queues { queue.tellSoon() }
            guard let after = troubles.ended("ready", at: "\(index)") else { return }
            logger.notice("ready again", metadata: ["after_ms": "\(after)"])
        case nil: break
        }
    }

    /// Tells of a connection to Redis that is lost or back.
    /// - Parameter source: which of the lane's connections it is.
    func tellOfRedis(_ state: RedisClient.State, at source: String) {
        switch state {
        case .disconnected(let error, let retryIn):
            trouble(
                .warning, error.headline, "redis", at: "\(index):\(source)",
                metadata: [
                    "redis": "\(configuration.redis)", "retry_in_ms": "\(retryIn.nanoseconds / 1_000_000)",
                ])
        case .ready:
            guard let after = troubles.ended("redis", at: "\(index):\(source)") else { return }
            logger.notice("Redis is back", metadata: ["redis": "\(configuration.redis)", "after_ms": "\(after)"])
        case .closed:
            _ = troubles.ended("redis", at: "\(index):\(source)")
        }
    }
}

extension AppLane {
    /// What keeps the app from sending.
    var problem: String? {
        if let reason = breaker.reason { return "the app \(configuration.name) is paused: \(reason)" }
        if transport.answerState == .unanswered { return "the app \(configuration.name) gets no answers from APNs" }
        return transport.usableConnections > 0 || transport.isDormant
            ? nil : "the app \(configuration.name) has no connection to APNs"
    }
}
