import Logging
import NIOCore
import Sockets

/// A client's attempts to connect: the waits between them, their log lines, and the callers that wait for a success.
/// Only on the event loop.
final class ConnectAttempts {
    private final class Waiter {
        var timer: Scheduled<Void>?
        let resume: (RedisError?) -> Void

        init(_ resume: @escaping (RedisError?) -> Void) { self.resume = resume }
    }

    private let address: String
    private let eventLoop: any EventLoop
    private let log: RedisClientLog
    private var state: ReconnectState
    private var next: Scheduled<Void>?
    private var waiting: [Waiter] = []

    /// - Parameter address: the address in errors.
    init(address: String, on eventLoop: any EventLoop, backoff: Backoff, log: RedisClientLog) {
        self.address = address
        self.eventLoop = eventLoop
        self.log = log
        state = ReconnectState(backoff: backoff)
    }

    var isConnecting: Bool { state.phase == .connecting }

    /// True after ``close(because:)``.
    var isClosed: Bool { state.phase == .closed }

    var lastError: RedisError? { state.lastError }

    /// The error of a command that cannot be sent.
    var notConnected: RedisError { state.notConnected(address: address) }

    /// - Returns: true if the caller should connect.
    func start() -> Bool { state.start() }

    /// Records that commands are sent to a server from now on.
    func succeeded(with server: RedisLocation) {
        log.connected(to: server, after: state.connected(at: eventLoop.now))
    }

    /// Records a failed attempt or a lost connection.
    /// - Parameter connect: makes the next attempt.
    /// - Returns: the wait before the next attempt; `nil` if no connection is wanted.
    func failed(because error: RedisError, connect: @escaping () -> Void) -> TimeAmount? {
        let random = Double.random(in: 0...1)
        guard let retry = state.failed(because: error, at: eventLoop.now, random: random) else { return nil }
        log.failed(error, retry)
        next = eventLoop.assumeIsolated().scheduleTask(in: retry.delay) { [self] in
            if state.waited() { connect() }
        }
        return retry.delay
    }

    /// Ends the wait before the next attempt.
    /// - Returns: true if the caller should connect.
    func endWait() -> Bool {
        guard state.waited() else { return false }
        next?.cancel()
        return true
    }

    func close(because error: RedisError) {
        state.close(because: error)
        next?.cancel()
    }

    // MARK: Waiting for a server

    /// Waits until there is a server for commands. Call it only while there is none.
    /// - Parameter resume: called once, with `nil` when commands can be sent, or with the reason why they cannot. Called at once if the
    ///   login is refused or the client is closed.
    func wait(for timeout: TimeAmount, resume: @escaping (RedisError?) -> Void) {
        if isClosed { return resume(notConnected) }
        if case .authentication = lastError { return resume(lastError) }
        let waiter = Waiter(resume)
        waiter.timer = eventLoop.assumeIsolated().scheduleTask(in: timeout) { [self] in
            waiting.removeAll { $0 === waiter }
            resume(lastError ?? notConnected)
        }
        waiting.append(waiter)
    }

    func resumeWaiting(with error: RedisError?) {
        let resumed = waiting
        waiting = []
        for waiter in resumed {
            waiter.timer?.cancel()
            waiter.resume(error)
        }
    }
}

struct RedisClientLog {
    let logger: Logger
    let topology: RedisTopology

    /// Logs a new connection.
    /// - Parameter recovery: the reported outage that this connection ends, if any.
    func connected(to server: RedisLocation, after recovery: ReconnectState.Recovery?) {
        var metadata: Logger.Metadata = ["redis": "\(topology)", "server": "\(server.address)"]
        if let recovery {
            metadata["event"] = "redis_back"
            metadata["after_ms"] = "\(recovery.after.nanoseconds / 1_000_000)"
            metadata["failures"] = "\(recovery.failures)"
            logger.notice("connected to Redis again", metadata: metadata)
        } else {
            metadata["event"] = "redis_connected"
            logger.debug("connected to Redis", metadata: metadata)
        }
    }

    /// Logs a lost connection or a failed attempt, as a warning if `retry.isReported`.
    func failed(_ error: RedisError, _ retry: ReconnectState.Retry) {
        logger.log(
            level: retry.isReported ? .warning : .debug, "\(error.headline)",
            metadata: [
                "event": "redis_lost", "redis": "\(topology)", "retry_in_ms": "\(retry.delay.nanoseconds / 1_000_000)",
                "failures": "\(retry.failures)",
            ])
    }

    /// Logs that a different deployment now answers at the known addresses.
    func otherDeployment() {
        logger.error(
            "another deployment of Redis has replaced the known one, which has not answered for a minute",
            metadata: ["event": "redis_other_deployment", "redis": "\(topology)"])
    }
}
