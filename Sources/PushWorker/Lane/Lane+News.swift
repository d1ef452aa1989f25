import APNS
import NIOCore
import PushQueue
import Redis

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// What a lane tells of itself, for people who want to know how the fleet is, and what people want of it in return.
///
/// Both travel with claims and renewals that are made anyway: an idle worker neither wakes nor talks more for it.
extension Lane {
    /// A lane tells of itself so often at the most.
    static let newsInterval = TimeAmount.seconds(3)
    /// A lane that can claim nothing renews its lease after this, however long that is, so that orders reach it.
    static let longestRenewal = TimeAmount.seconds(11)

    func news(on keys: QueueKeys) -> WorkerNews {
        let now = eventLoop.now
        var report = WorkerReport()
        report.process = configuration.workerName
        report.host = HostName.current
        report.processIdentifier = Int(getpid())
        report.version = WorkerVersion.current
        report.lane = index
        report.lanes = laneCount
        report.state = phase == .running ? (isQuiet ? .quiet : .running) : .draining
        report.obstacles = lastingObstacles(now: now)
        report.inFlight = flights.count
        report.done = counters.done
        report.delivered = counters.delivered
        report.rate = recentRate.update(report.done, now: now)
        report.redis =
            switch configuration.redis {
            case .single: "single"
            case .sentinel: "sentinel"
            case .cluster: "cluster"
            }
        if keys.hasOtherList {
            report.list = keys.jobs
            report.headIsRight = keys.head == .right
        }
        report.apps = apps.filter { !$0.isLeaving }.map(\.report)
        return WorkerNews(report, uptime: (now - startedAt).nanoseconds / 1_000_000)
    }

    // MARK: Orders

    /// Redis has an order for the process; it may have been seen before.
    func heard(_ order: WorkerOrder) {
        guard order != lastOrder else { return }
        lastOrder = order
        onOrder?(order)
    }

    /// Claims nothing more, or claims again. What is under way goes on, and leases are kept. From anywhere.
    func setQuiet(_ quiet: Bool) {
        eventLoop.execute { [self] in
            guard quiet != isQuiet, phase == .running || phase == .starting else { return }
            isQuiet = quiet
            for queue in queues {
                if !quiet { queue.window.wake() }
                queue.tellSoon()
            }
            schedulePump()
        }
    }

    /// Takes what is the lane's own already: nothing else would, as long as its lease lasts.
    func claimOwn() {
        for queue in queues { queue.claimOwn() }
    }
}

extension AppLane {
    /// What is told of the app.
    fileprivate var report: WorkerReport.App {
        let statistics = transport.statistics
        var report = WorkerReport.App()
        report.name = configuration.name
        report.endpoint = "\(configuration.endpoint)"
        report.usable = statistics.usable
        report.connecting = statistics.connecting
        report.streams = statistics.streamsInUse
        report.streamLimit = statistics.streamLimit
        report.isDormant = transport.isDormant
        report.isUnanswered = transport.answerState == .unanswered
        report.pause = breaker.reason
        if statistics.usable == 0, !transport.isDormant {
            report.failure = transport.lastFailure.map { "\($0)" }
        }
        return report
    }
}
