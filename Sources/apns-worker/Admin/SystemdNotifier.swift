import FoundationEssentials
import Glibc
import Logging
import PushWorker
import ServiceLifecycle
import Telemetry

/// Tells systemd how the worker does, where systemd (or whoever speaks its protocol) has started it and wants to know.
///
/// To be stopped last: it goes on telling while the worker drains.
actor SystemdNotifier: Service {
    /// How often it looks where nothing else asks for more.
    private static let calm = Duration.seconds(10)
    private static let troubled = Duration.seconds(1)
    private static let starting = Duration.milliseconds(50)

    private let socket: NotifySocket
    private let worker: Worker
    private let logger: Logger
    private let interval: Duration
    private var notices: ServiceNotices
    private var wasStuck = false
    private var hasFailed = false

    /// - Returns: nil where nobody wants to be told.
    init?(_ worker: Worker, environment: [String: String], logger: Logger) {
        guard let name = environment["NOTIFY_SOCKET"], !name.isEmpty else { return nil }
        do {
            socket = try NotifySocket(name)
        } catch {
            logger.warning("systemd is told nothing: \(error)")
            return nil
        }
        self.worker = worker
        self.logger = logger
        let watchdog = Self.watchdog(environment)
        notices = ServiceNotices(isWatched: watchdog != nil)
        // Twice in the time after which systemd gives the service up for dead.
        interval = watchdog.map { min($0 / 2, Self.calm) } ?? Self.calm
    }

    /// After how long a silence systemd ends this process; nil for never. See sd_watchdog_enabled(3).
    private static func watchdog(_ environment: [String: String]) -> Duration? {
        guard let microseconds = environment["WATCHDOG_USEC"].flatMap(Int64.init), microseconds > 0 else { return nil }
        // It may be meant for whoever started this one.
        if let process = environment["WATCHDOG_PID"], process != "\(getpid())" { return nil }
        return .microseconds(microseconds)
    }

    func run() async {
        await cancelWhenGracefulShutdown {
            while !Task.isCancelled {
                let isCalm = await self.tell()
                let pause =
                    isCalm ? self.interval : min(self.interval, self.worker.isWorking ? Self.troubled : Self.starting)
                // A cancelled sleep ends the loop.
                try? await Task.sleep(for: pause)
            }
        }
    }

    /// The configuration is being loaded anew.
    func reloadBegan() async {
        var now = timespec()
        clock_gettime(CLOCK_MONOTONIC, &now)
        notices.reloadBegan(at: UInt64(now.tv_sec) * 1_000_000 + UInt64(now.tv_nsec) / 1000)
        await tell()
    }

    /// - Parameter refused: why the configuration before stays in force, if it does.
    func reloadEnded(refused: String?) async {
        notices.reloadEnded(refused: refused)
        await tell()
    }

    /// The worker begins to drain.
    func stopping() async {
        notices.stopping()
        await tell()
    }

    /// - Returns: whether all is well, and there is nothing to tell soon.
    @discardableResult
    private func tell() async -> Bool {
        var view = ServiceNotices.View()
        view.hasStarted = worker.isWorking
        view.stuck = worker.liveness().problems
        if view.hasStarted, view.stuck.isEmpty {
            view.problems = await worker.health().problems
            // A loop that does not answer would be waited for without end here; nobody reads the figures then.
            if view.problems.isEmpty {
                let counters = await worker.counters()
                (view.delivered, view.dead) = (counters.delivered, counters.dead)
            }
        }
        tellOfStuck(view.stuck)
        do {
            for message in notices.messages(view) { try socket.send(message) }
            notices.wasSent()
            hasFailed = false
        } catch {
            if !hasFailed { logger.warning("systemd could not be told how the worker does: \(error)") }
            hasFailed = true
        }
        return view.hasStarted && view.problems.isEmpty && view.stuck.isEmpty && !hasFailed
    }

    private func tellOfStuck(_ stuck: [String]) {
        defer { wasStuck = !stuck.isEmpty }
        guard !wasStuck, !stuck.isEmpty else { return }
        logger.critical(
            "\(stuck.joined(separator: "; ")); systemd's watchdog is not fed, so it ends this process unless that passes"
        )
    }
}

/// Tells systemd that the worker drains. To be stopped first.
struct StoppingNotice: Service {
    let notifier: SystemdNotifier

    func run() async throws {
        // Cancellation ends the wait as a graceful shutdown does.
        try? await gracefulShutdown()
        await notifier.stopping()
    }
}
