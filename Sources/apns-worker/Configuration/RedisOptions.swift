import ArgumentParser
import Logging
import NIOCore
import NIOPosix
import PushQueue
import Redis

/// Where Redis is: the same flags for every command.
struct RedisOptions: ParsableArguments {
    @OptionGroup var configuration: ConfigurationOptions

    @Option(
        help: """
            redis://[user:password@]host:port/db, redis+sentinel://host,…/db?master=name or redis+cluster://host,…; \
            rediss… for TLS; ?password_file=/path for a password in a file. \
            (APNS_WORKER_REDIS_URL; default redis://127.0.0.1:6379)
            """)
    var redis: String?

    @Option(help: "With TLS: a PEM file with the CAs to trust, instead of the system's. (APNS_WORKER_REDIS_CA)")
    var redisCa: String?

    @Option(help: "With TLS: a client certificate, PEM, with its chain. (APNS_WORKER_REDIS_CERTIFICATE)")
    var redisCertificate: String?

    @Option(
        help: "The certificate's private key, PEM. (APNS_WORKER_REDIS_CERTIFICATE_KEY; default the certificate's file)")
    var redisCertificateKey: String?

    @Option(help: "What all keys in Redis begin with. (APNS_WORKER_PREFIX; default push)")
    var prefix: String?

    /// What the flags say.
    var given: [SettingKey: String] {
        SettingKey.given([
            (.redisURL, redis), (.redisCA, redisCa), (.redisCertificate, redisCertificate),
            (.redisCertificateKey, redisCertificateKey), (.prefix, prefix),
        ])
    }

    /// All settings of a command that has these flags only.
    func settings() throws -> Settings { try configuration.settings(given) }

    /// A client for a command, which has begun to connect.
    /// - Parameter key: in a Cluster, any key of the slot that the client is to serve.
    func client(for key: String) throws -> RedisClient {
        let settings = try settings()
        var configuration = try settings.redisClient()
        configuration.clientName = "apns-worker:command"
        let client = RedisClient(
            topology: try settings.redisTopology(), key: key, eventLoop: MultiThreadedEventLoopGroup.singleton.next(),
            configuration: configuration, logger: Logger(label: "redis", factory: { _ in SwiftLogNoOpLogHandler() }))
        client.start()
        return client
    }

    /// Does something with what all workers know of an app, over a client that is ready, and is closed then.
    /// - Throws: what `body` throws; an error of Redis as one that is told as a mistake of usage is.
    func withClient(for app: String, _ body: (RedisClient, SharedKeys) async throws -> Void) async throws {
        let keys = try settings().sharedKeys
        try await withClient(for: keys.appPaused(app)) { try await body($0, keys) }
    }

    /// Does something over a client that is ready, and is closed then.
    /// - Parameter key: in a Cluster, any key of the slot that the client is to serve.
    func withClient(for key: String, _ body: (RedisClient) async throws -> Void) async throws {
        let client = try client(for: key)
        do {
            try await client.waitUntilReady(timeout: .seconds(10))
            try await body(client)
        } catch let error as RedisError {
            throw ValidationError("\(error)")
        }
        try? await client.close().get()
    }
}
