import ArgumentParser
import Logging
import NIOPosix
import PushQueue
import Redis

/// How a command reaches Redis. It tells of trouble itself, and the clients' log is silent.
struct CommandRedis {
    let topology: RedisTopology
    let configuration: RedisClientConfiguration
    let logger = Logger(label: "redis", factory: { _ in SwiftLogNoOpLogHandler() })

    /// - Parameter name: what Redis lists its connections under.
    init(_ settings: Settings, as name: String = "apns-worker:command") throws {
        topology = try settings.redisTopology()
        var configuration = try settings.redisClient()
        configuration.clientName = name
        self.configuration = configuration
    }
}

extension Settings {
    /// Does something over a client that is ready, and is closed then.
    /// - Parameter key: in a Cluster, any key of the slot that the client is to serve.
    /// - Throws: what `body` throws; an error of Redis as one that is told as a mistake of usage is.
    func withClient(for key: String, _ body: (RedisClient) async throws -> Void) async throws {
        let redis = try CommandRedis(self)
        let client = RedisClient(
            topology: redis.topology, key: key, eventLoop: MultiThreadedEventLoopGroup.singleton.next(),
            configuration: redis.configuration, logger: redis.logger)
        client.start()
        do {
            try await client.waitUntilReady(timeout: .seconds(10))
            try await body(client)
        } catch let error as RedisError {
            throw ValidationError("\(error)")
        }
        try? await client.close().get()
    }

    /// The same with what all workers know of an app.
    func withClient(forApp app: String, _ body: (RedisClient, SharedKeys) async throws -> Void) async throws {
        let keys = sharedKeys
        try await withClient(for: keys.appPaused(app)) { try await body($0, keys) }
    }
}
