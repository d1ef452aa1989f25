import Logging
import NIOCore
import NIOPosix
import PushQueue
import Redis
import Synchronization

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
    /// Runs `body` over a client that is ready, and closes it afterwards.
    /// - Parameter key: in a Cluster, any key of the slot that the client is to serve.
    /// - Throws: the errors of `body`; those of Redis as a ``CommandFailure``.
    func withClient(for key: String, _ body: (RedisClient) async throws -> Void) async throws {
        let redis = try CommandRedis(self)
        let client = RedisClient(
            topology: redis.topology, key: key, eventLoop: MultiThreadedEventLoopGroup.singleton.next(),
            configuration: redis.configuration, logger: redis.logger)
        client.start()
        try await CommandFailure.mapping {
            try await redisPatience.wait { try await client.waitUntilReady(timeout: $0) }
            try await body(client)
        }
        try? await client.close().get()
    }

    /// The same with what all workers know of an app.
    func withClient(forApp app: String, _ body: (RedisClient, SharedKeys) async throws -> Void) async throws {
        let keys = sharedKeys
        try await withClient(for: keys.appPaused(app)) { try await body($0, keys) }
    }
}

/// The time for which a command waits for Redis.
struct RedisPatience: Sendable {
    static let standard = 10_000
    /// An attempt to connect that has not succeeded after this time is reported.
    private static let silence = 500
    private static let hasReported = Atomic(false)

    /// In milliseconds.
    var milliseconds = standard

    /// Waits for a client; reports on standard error, once per process, why there is no connection yet.
    /// - Parameter ready: waits for at most the given time.
    func wait(until ready: (TimeAmount) async throws -> Void) async throws {
        let first = min(Self.silence, milliseconds)
        do {
            return try await ready(.milliseconds(Int64(first)))
        } catch let error as RedisError {
            if case .authentication = error { throw error }
            guard first < milliseconds else { throw error }
            if !Self.hasReported.exchange(true, ordering: .relaxed) {
                Terminal.tell("waiting up to \(DurationText.text(milliseconds)) for Redis: \(error)\n")
            }
        }
        try await ready(.milliseconds(Int64(milliseconds - first)))
    }
}
