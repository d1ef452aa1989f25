import FoundationEssentials
import Glibc
import Logging
import PrintableText
import PushWorker
import ServiceLifecycle
import Telemetry

/// Notifies systemd, or another manager with its protocol, that the worker is ready, reloading, stopping, or alive.
///
/// It must be stopped last, so that it notifies the watchdog while the worker drains.
actor SystemdNotifier: Service {
    /// The interval between checks of a started worker, unless the watchdog needs a shorter one.
    private static let calm = Duration.seconds(10)
    private static let afterFailure = Duration.seconds(1)
    private static let starting = Duration.milliseconds(50)

    private let socket: NotifySocket
    private let worker: Worker
    private let logger: Logger
    private let interval: Duration
    private var notices: ServiceNotices
    private var wasStuck = false
    private var hasFailed = false

    /// - Returns: nil without `NOTIFY_SOCKET`.
    init?(_ worker: Worker, environment: [String: String], logger: Logger) {
        guard let name = environment["NOTIFY_SOCKET"], !name.isEmpty else { return nil }
        do {
            socket = try NotifySocket(name)
        } catch {
            logger.warning("systemd is not notified: \(error)", metadata: ["event": "systemd_socket_unusable"])
            return nil
        }
        self.worker = worker
        self.logger = logger
        let watchdog = Self.watchdog(environment)
        notices = ServiceNotices(isWatched: watchdog != nil)
        // At least twice within the watchdog's period.
        interval = watchdog.map { min($0 / 2, Self.calm) } ?? Self.calm
    }

    /// The time without notification after which systemd ends this process; `nil` for never. See sd_watchdog_enabled(3).
    private static func watchdog(_ environment: [String: String]) -> Duration? {
        guard let microseconds = environment["WATCHDOG_USEC"].flatMap(Int64.init), microseconds > 0 else { return nil }
        // The variables may be meant for a parent process.
        if let process = environment["WATCHDOG_PID"], process != "\(getpid())" { return nil }
        return .microseconds(microseconds)
    }

    func run() async {
        await cancelWhenGracefulShutdown {
            while !Task.isCancelled {
                await self.notify()
                await self.readStatus()
                // A cancelled sleep ends the loop.
                try? await Task.sleep(for: self.pause)
            }
        }
    }

    private var pause: Duration {
        guard worker.isWorking else { return min(interval, Self.starting) }
        return wasStuck || hasFailed ? min(interval, Self.afterFailure) : interval
    }

    func reloadBegan() {
        var now = timespec()
        clock_gettime(CLOCK_MONOTONIC, &now)
        notices.reloadBegan(at: UInt64(now.tv_sec) * 1_000_000 + UInt64(now.tv_nsec) / 1000)
        notify()
    }

    func reloadEnded() {
        notices.reloadEnded()
        notify()
    }

    func stopping() {
        notices.stopping()
        notify()
    }

    /// Sends the readiness to claim and send jobs as a status line, because `READY=1` means only that the process works.
    private func readStatus() async {
        let problems = await worker.health().problems
        let first = problems.first.map { "not ready: \($0)" } ?? "ready"
        let more = problems.count > 1 ? " (and \(problems.count - 1) more)" : ""
        if notices.has(status: (first.prefix(300) + more).printable) { notify() }
    }

    private func notify() {
        let stuck = worker.liveness().problems
        logStuck(stuck)
        do {
            for message in notices.messages(hasStarted: worker.isWorking, isStuck: !stuck.isEmpty) {
                try socket.send(message)
            }
            notices.wasSent()
            hasFailed = false
        } catch {
            if !hasFailed {
                logger.warning("systemd could not be notified: \(error)", metadata: ["event": "systemd_notify_failed"])
            }
            hasFailed = true
        }
    }

    private func logStuck(_ stuck: [String]) {
        defer { wasStuck = !stuck.isEmpty }
        guard !wasStuck, !stuck.isEmpty else { return }
        logger.critical(
            """
            \(stuck.joined(separator: "; ")); the watchdog is not notified, and systemd will kill this process unless \
            the loop recovers
            """, metadata: ["event": "lanes_stuck"])
    }
}

/// Notifies systemd that the worker is draining. It must be stopped first.
struct StoppingNotice: Service {
    let notifier: SystemdNotifier

    func run() async throws {
        // Cancellation ends the wait like a graceful shutdown.
        try? await gracefulShutdown()
        await notifier.stopping()
    }
}
