import Logging
import NIOConcurrencyHelpers
import NIOCore
import Sockets

/// Learns from the Sentinels which server is the master, for all clients of a process, over one connection to a Sentinel.
///
/// After a failover from a healthy master, the old master accepts writes for about ten more seconds. These writes are lost when a Sentinel
/// makes it a replica. So clients must learn of the failover at once, and the old master does not report it. (Source: Redis Sentinel
/// documentation, "Pub/Sub messages" and `+convert-to-slave`.)
///
/// `@unchecked Sendable`: all state is accessed only on `eventLoop`.
public final class MasterWatch: LoopBound, @unchecked Sendable {
    private struct Listener {
        let eventLoop: any EventLoop
        let onMaster: @Sendable (RedisLocation) -> Void
    }

    private enum State {
        /// No clients.
        case idle
        /// The watch is connecting to a Sentinel, or waiting to try again.
        case connecting
        case listening(RedisConnection)
    }

    private enum Inquiry {
        case none
        case inProgress
        /// An inquiry is in progress, but its answer may be outdated, so another one follows.
        case underWayAndWanted
    }

    private static let channel = "+switch-master"
    /// The waits before another Sentinel is tried.
    private static let pauses = Backoff(first: .seconds(1), longest: .seconds(30), least: 1)
    /// The interval between inquiries while no Sentinel announces anything.
    private static let blindInterval: TimeAmount = .seconds(2)
    /// The Sentinel must answer a ping this often. Without pings, a Sentinel that hangs would only seem to have no news.
    private static let pingInterval: TimeAmount = .seconds(5)

    private let master: String
    private let eventLoop: any EventLoop
    private let configuration: RedisClientConfiguration
    private let discovery: ServerDiscovery
    private var listeners: [ObjectIdentifier: Listener] = [:]
    private var state = State.idle
    private var inquiry = Inquiry.none
    private var timer: Scheduled<Void>?
    private let logger: Logger?
    /// The number of failed attempts to listen since the last success.
    private var failures = 0
    private let lastFailure = NIOLockedValueBox<String?>(nil)

    /// The reason why changes of the master are not announced now; `nil` if they are. Can be read from any thread.
    public var failure: String? { lastFailure.withLockedValue { $0 } }

    /// Creates a watch. It does nothing while no client uses it.
    /// - Parameter logger: gets a line when the watch fails, and when it works again.
    /// - Returns: `nil` unless the topology has Sentinels.
    public init?(
        _ topology: RedisTopology, eventLoop: any EventLoop,
        configuration: RedisClientConfiguration = RedisClientConfiguration(), logger: Logger? = nil
    ) {
        guard case .sentinel(let sentinel) = topology else { return nil }
        master = sentinel.master
        self.eventLoop = eventLoop
        self.configuration = configuration
        self.logger = logger
        discovery = ServerDiscovery(
            NodeConnections(topology: topology, eventLoop: eventLoop, configuration: configuration), slot: 0)
    }

    /// Reports the master to a client: at once, whenever it changes, and at intervals. Can be called from any thread.
    /// - Parameters:
    ///   - listener: identifies the client.
    ///   - deployment: the client's deployment. A watch without a deployment adopts it, and then never reports the master of another one.
    ///   - onMaster: called on `eventLoop`.
    func add(
        _ listener: ObjectIdentifier, of deployment: RedisDeployment, on eventLoop: any EventLoop,
        onMaster: @escaping @Sendable (RedisLocation) -> Void
    ) {
        self.eventLoop.enter { [self] in
            discovery.search.learn(deployment)
            listeners[listener] = Listener(eventLoop: eventLoop, onMaster: onMaster)
            switch state {
            case .idle: start()
            case .connecting: break
            case .listening: inquire()
            }
        }
    }

    /// Stops reporting to a client. Can be called from any thread.
    func remove(_ listener: ObjectIdentifier) {
        eventLoop.enter { [self] in
            guard listeners.removeValue(forKey: listener) != nil, listeners.isEmpty else { return }
            timer?.cancel()
            if case .listening(let connection) = state { connection.close() }
            state = .idle
        }
    }

    // MARK: Listening

    private func start() {
        state = .connecting
        connect()
        scheduleInquiry()
    }

    private func connect() {
        discovery.connectToSeed { [self] result, seed in
            guard case .connecting = state else {
                if case .success(let connection) = result { connection.close() }
                return
            }
            switch result {
            case .success(let connection): listen(to: seed, over: connection)
            case .failure(let error): lost(seed, error)
            }
        }
    }

    private func listen(to seed: RedisLocation, over connection: RedisConnection) {
        state = .listening(connection)
        connection.onClose = { [self] error in
            if case .listening(let current) = state, current === connection { lost(seed, error) }
        }
        connection.onMessage = { [self] message in
            guard message.root.count == 3, message.root[2].string?.hasPrefix(master + " ") == true else { return }
            // This Sentinel knows the new master; other Sentinels may not know it yet.
            discovery.search.prefer(seed)
            inquire()
        }
        connection.send(RedisCommand("SUBSCRIBE", Self.channel), timeout: configuration.askTimeout) { [self] result in
            switch result {
            case .success:
                watches()
                // The master may have changed before the subscription.
                inquire()
                schedulePing(over: connection)
            case .failure(let error):
                guard case .listening(let current) = state, current === connection else { return }
                connection.onClose = nil
                connection.close()
                lost(seed, error)
            }
        }
    }

    private func watches() {
        failures = 0
        guard failure != nil else { return }
        lastFailure.withLockedValue { $0 = nil }
        logger?.notice("a Sentinel announces failovers again", metadata: ["event": "sentinel_watch_back"])
    }

    /// Records that no Sentinel announces anything.
    private func fails(_ error: RedisError, of seed: RedisLocation) {
        failures += 1
        // Until each Sentinel has failed once, another one may be reachable.
        guard failures >= discovery.search.seeds.count, failure == nil else { return }
        let reason = "no Sentinel announces failovers: \(refusal(error, of: seed).shortText)"
        lastFailure.withLockedValue { $0 = reason }
        logger?.warning(
            "\(reason); asking for the master every \(Self.blindInterval.nanoseconds / 1_000_000_000) s instead",
            metadata: ["event": "sentinel_watch_failed"])
        timer?.cancel()
        scheduleInquiry()
    }

    private func schedulePing(over connection: RedisConnection) {
        eventLoop.scheduleTask(in: Self.pingInterval) { [self] in
            guard connection.isOpen else { return }
            // Without an answer the connection ends.
            connection.send(RedisCommand("PING", expecting: 0), timeout: configuration.askTimeout) { [self] _ in
                schedulePing(over: connection)
            }
        }
    }

    private func lost(_ seed: RedisLocation, _ error: RedisError) {
        state = .connecting
        fails(error, of: seed)
        discovery.search.demote(seed)
        // The wait grows only once all Sentinels have been tried.
        let pause = Self.pauses.limit(failures: failures - discovery.search.seeds.count)
        eventLoop.scheduleTask(in: pause) { [self] in
            if case .connecting = state { connect() }
        }
    }

    // MARK: Asking

    /// Schedules the next inquiry, in case an announcement was lost.
    private func scheduleInquiry() {
        let spread = Double.random(in: 0.8...1.2)
        let interval = failure == nil ? configuration.refreshInterval : Self.blindInterval
        let delay = TimeAmount.nanoseconds(Int64(Double(interval.nanoseconds) * spread))
        timer = eventLoop.scheduleTask(in: delay) { [self] in
            scheduleInquiry()
            inquire()
        }
    }

    private func inquire() {
        guard case .none = inquiry else {
            inquiry = .underWayAndWanted
            return
        }
        inquiry = .inProgress
        discovery.check { [self] location in
            let isOld = if case .underWayAndWanted = inquiry { true } else { false }
            inquiry = .none
            guard !listeners.isEmpty else { return }
            if isOld { return inquire() }
            guard let location else { return }
            for listener in listeners.values { listener.eventLoop.execute { listener.onMaster(location) } }
        }
    }
}
