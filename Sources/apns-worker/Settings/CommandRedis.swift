import Logging
import NIOCore
import NIOPosix
import Operations
import PushQueue
import Redis

/// A command's connections to Redis. The command reports problems itself, so the clients log nothing.
struct CommandRedis {
    private let settings: Settings
    private let redis: RedisSettings
    let topology: RedisTopology
    let configuration: RedisClientConfiguration
    let logger = Logger(label: "redis", factory: { _ in SwiftLogNoOpLogHandler() })

    /// - Parameter name: the name of its connections in Redis.
    init(_ settings: Settings, as name: String = "apns-worker:command") throws {
        (self.settings, redis) = (settings, RedisSettings(settings))
        topology = try redis.topology()
        var configuration = try redis.client()
        configuration.clientName = name
        self.configuration = configuration
    }

    /// Runs `body` with a client that is ready, and closes it afterwards.
    /// - Parameter key: in a Cluster, any key of the slot to connect to.
    /// - Throws: the errors of `body`; those of Redis as a ``CommandFailure``.
    func withClient(for key: String, _ body: (RedisClient) async throws -> Void) async throws {
        let client = RedisClient(
            topology: topology, key: key, eventLoop: MultiThreadedEventLoopGroup.singleton.next(),
            configuration: configuration, logger: logger)
        client.start()
        try await CommandFailure.mapping {
            try await settings.redisPatience.wait { try await client.waitUntilReady(timeout: $0) }
            try await body(client)
        }
        try? await client.close().get()
    }

    /// Runs `body` with the set of invalid tokens, using a client that is closed afterwards.
    /// - Throws: the errors of `body`; those of Redis as a ``CommandFailure``.
    func withInvalidTokens(_ body: (InvalidTokenClient) async throws -> Void) async throws {
        let client = invalidTokens()
        try await CommandFailure.mapping {
            try await settings.redisPatience.wait { try await client.waitUntilReady(timeout: $0) }
            try await body(client)
        }
        await client.close()
    }

    /// Returns the set of invalid tokens, with a client that starts to connect.
    func invalidTokens() -> InvalidTokenClient {
        InvalidTokenClient.start(
            topology: topology, keys: redis.sharedKeys, maximumAge: redis.invalidTokenAge, configuration: configuration,
            logger: logger)
    }

    /// The settings of Redis that are not the defaults, for commands that are printed to be copied.
    private var access: FleetAccess {
        FleetAccess(
            Setting.all.filter { $0.section == .redis }.compactMap { setting in
                guard let text = settings.text(setting), text != setting.initial.map(setting.kind.text) else {
                    return nil
                }
                return (setting.flag, setting.variable, text)
            })
    }

    /// Returns the fleet, with clients that connect on demand.
    func fleet(
        searches: Bool,
        on eventLoop: any EventLoop = MultiThreadedEventLoopGroup.singleton.next(),
        waitUntilReady: @escaping @Sendable (RedisClient) async throws -> Void
    ) throws -> Fleet {
        let clients = RedisClients(
            topology: topology, eventLoop: eventLoop, configuration: configuration, logger: logger)
        let source = QueueSettings(settings)
        let queues = try source.all()
        return Fleet(
            clients: clients, prefix: redis.prefix, access: access, named: queues.map(\.keys),
            isNamed: settings.namesQueues,
            searches: searches,
            configured: { name in
                let isGiven = settings.given(.format, queue: name) != nil || settings.given(.list, queue: name) != nil
                let queue =
                    try queues.first { $0.keys.queue == name }
                    ?? source.queue(name, weight: nil, place: "the settings", isOnly: false)
                return (QueueSource(keys: queue.keys, format: queue.format, limits: queue.limits), isGiven)
            }, waitUntilReady: waitUntilReady)
    }
}
