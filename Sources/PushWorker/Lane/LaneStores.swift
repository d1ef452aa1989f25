import Logging
import NIOCore
import PushQueue
import Redis

/// A lane's access to Redis.
protocol LaneStores: AnyObject {
    var fleet: FleetStore { get }
    /// - Parameter waits: true if a blocking wait watches the queue.
    func store(of queue: QueueContext, waits: Bool) -> any QueueStore
    /// Starts to connect, and reports changes of the connections to the consumers.
    func start(_ consumers: [QueueConsumer])
    func close() -> EventLoopFuture<Void>
}

/// A lane's connections to Redis.
final class RedisLaneStores: LaneStores {
    private let context: LaneContext
    private let clients: RedisClients
    /// The client for the slot of the keys that all queues share.
    private let shared: RedisClient
    private var waiters: [RedisClient] = []
    let fleet: FleetStore

    init(_ context: LaneContext) {
        self.context = context
        let configuration = context.configuration
        var redis = configuration.redisClient
        redis.clientName = "apns-worker:\(configuration.workerName):\(context.index)"
        clients = RedisClients(
            topology: configuration.redis, eventLoop: context.eventLoop, configuration: redis,
            masterWatch: context.masterWatch, logger: Self.quiet(context.logger))
        shared = clients.prepareClient(for: configuration.sharedKeys.invalidTokens)
        let clients = clients
        fleet = FleetStore(
            shared, clients: { clients.client(for: $0) }, of: context)
    }

    /// Returns a logger for Redis clients that logs only errors. The lanes log the states of all connections together.
    private static func quiet(_ logger: Logger) -> Logger {
        guard logger.logLevel > .debug else { return logger }
        var logger = logger
        logger.logLevel = max(logger.logLevel, .error)
        return logger
    }

    func client(of keys: QueueKeys) -> RedisClient { clients.prepareClient(for: keys.jobs) }

    func store(of queue: QueueContext, waits: Bool) -> any QueueStore {
        let waiter = waits ? makeWaiter(for: queue.keys) : nil
        if let waiter { waiters.append(waiter) }
        let client = client(of: queue.keys)
        return QueueConnection(
            client: client, waiter: waiter, keys: queue.keys, worker: queue.holder, limits: queue.limits,
            holdsInvalidTokens: client === shared)
    }

    /// A blocking wait delays later commands on its connection, so each queue's wait has a connection of its own.
    private func makeWaiter(for keys: QueueKeys) -> RedisClient {
        var redis = context.configuration.redisClient
        redis.clientName = "apns-worker:\(context.configuration.workerName):wait:\(keys.queue)"
        return RedisClient(
            topology: context.configuration.redis, key: keys.jobs, eventLoop: context.eventLoop, configuration: redis,
            masterWatch: context.masterWatch, logger: Self.quiet(context.logger))
    }

    func start(_ consumers: [QueueConsumer]) {
        clients.onStateChange = { [weak self] client, state in
            guard let self else { return }
            log(state, of: client)
            count(state)
            for consumer in consumers where self.client(of: consumer.queue.keys) === client {
                consumer.redisChanged(state)
            }
            if case .ready = state { for consumer in consumers { consumer.otherRedisReady() } }
        }
        clients.start()
        for waiter in waiters { waiter.start() }
    }

    func close() -> EventLoopFuture<Void> {
        EventLoopFuture.andAllComplete(waiters.map { $0.close() } + [clients.close()], on: context.eventLoop)
    }

    private func log(_ state: RedisClient.State, of client: RedisClient) {
        let source = "\(ObjectIdentifier(client))"
        switch state {
        case .disconnected(let error, let retryIn):
            context.logOngoing(
                .warning, "redis_lost", error.headline, of: "redis", at: source,
                metadata: [
                    "redis": "\(context.configuration.redis)", "retry_in_ms": "\(retryIn.nanoseconds / 1_000_000)",
                ])
        case .ready:
            context.logEnd(
                "redis_back", "connected to Redis again", of: "redis", at: source,
                metadata: ["redis": "\(context.configuration.redis)"])
        case .closed: _ = context.issues.ended("redis", at: "\(context.index):\(source)", now: context.now)
        }
    }

    private func count(_ state: RedisClient.State) {
        switch state {
        case .ready: context.metrics.redisConnections += 1
        case .disconnected: context.metrics.redisFailures += 1
        case .closed: break
        }
    }
}
