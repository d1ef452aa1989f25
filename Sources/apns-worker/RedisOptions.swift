import ArgumentParser
import Logging
import NIOCore
import NIOPosix
import PushQueue
import Redis
import TLS

/// Where Redis is: the same flags for every command.
struct RedisOptions: ParsableArguments {
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

    var keyPrefix: String { Setting.text(prefix, "APNS_WORKER_PREFIX") ?? "push" }

    func topology() throws -> RedisTopology {
        let url = Setting.text(redis, "APNS_WORKER_REDIS_URL") ?? "redis://127.0.0.1:6379"
        do {
            return try RedisTopology(url: url)
        } catch {
            throw ValidationError("APNS_WORKER_REDIS_URL (or --redis): \(error)")
        }
    }

    /// How to connect to it.
    func clientConfiguration() throws -> RedisClientConfiguration {
        var configuration = RedisClientConfiguration()
        let ca = Setting.text(redisCa, "APNS_WORKER_REDIS_CA")
        let certificate = Setting.text(redisCertificate, "APNS_WORKER_REDIS_CERTIFICATE")
        let key = Setting.text(redisCertificateKey, "APNS_WORKER_REDIS_CERTIFICATE_KEY")
        guard ca != nil || certificate != nil || key != nil else { return configuration }
        guard try topology().usesTLS else {
            throw ValidationError(
                "certificates for Redis are given, but its URL is without TLS: it has to begin with rediss")
        }
        do {
            var tls = TLSClientConfiguration()
            if let ca { tls.trust = .file(ca) }
            if let certificate {
                tls.identity = try TLSIdentity(certificateFile: certificate, keyFile: key ?? certificate)
            } else if let key {
                throw ValidationError("the private key \(key) for Redis is given without its certificate")
            }
            configuration.tls = try TLSContext.client(tls)
        } catch let error as TLSError {
            throw ValidationError("\(error)")
        }
        return configuration
    }

    /// A client for a command, which has begun to connect.
    /// - Parameter key: in a Cluster, any key of the slot that the client is to serve.
    func client(for key: String) throws -> RedisClient {
        var configuration = try clientConfiguration()
        configuration.clientName = "apns-worker:command"
        let client = RedisClient(
            topology: try topology(), key: key, eventLoop: MultiThreadedEventLoopGroup.singleton.next(),
            configuration: configuration, logger: Logger(label: "redis", factory: { _ in SwiftLogNoOpLogHandler() }))
        client.start()
        return client
    }

    /// Does something with what all workers know of an app, over a client that is ready, and is closed then.
    /// - Throws: what `body` throws; an error of Redis as one that is told as a mistake of usage is.
    func withClient(for app: String, _ body: (RedisClient, SharedKeys) async throws -> Void) async throws {
        let keys = SharedKeys(prefix: keyPrefix)
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
