import PushQueue
import Redis
import TLS

/// The settings of Redis, and of the keys that all queues share.
struct RedisSettings {
    private let settings: Settings

    init(_ settings: Settings) { self.settings = settings }

    /// The prefix of all keys.
    var prefix: String { settings.text(.prefix) ?? "" }

    var sharedKeys: SharedKeys { SharedKeys(prefix: prefix) }

    /// Returns the servers of Redis that its URL names.
    func topology() throws -> RedisTopology {
        guard let url = settings.value(.redisURL) else {
            throw CommandFailure(.configuration, "no Redis URL is set; set one with --redis")
        }
        do {
            return try RedisTopology(url: url.text)
        } catch {
            throw Settings.mistake(at: url.place.description, "\(error)")
        }
    }

    /// Returns the options of connections to Redis.
    func client() throws -> RedisClientConfiguration {
        var configuration = RedisClientConfiguration()
        let ca = try settings.secret(.redisCA, .redisCABase64)
        let certificate = settings.text(.redisCertificate).map(SecretSource.file)
        let key = settings.text(.redisCertificateKey).map(SecretSource.file)
        guard ca != nil || certificate != nil || key != nil else { return configuration }
        guard try topology().usesTLS else {
            throw CommandFailure(
                .configuration,
                "certificates for Redis are set, but its URL does not use TLS; use rediss://")
        }
        if certificate == nil, let key {
            throw CommandFailure(.configuration, "the private key \(key) for Redis is set without its certificate")
        }
        do {
            configuration.tls = try Renewable([certificate, key, ca].compactMap { $0 }) { contents in
                var rest = contents[...]
                var tls = TLSClientConfiguration()
                if let certificate {
                    tls.identity = try TLSIdentity(
                        bytes: rest.removeFirst(), keyBytes: key == nil ? nil : rest.removeFirst(),
                        source: "\(certificate)", keySource: key.map { "\($0)" })
                }
                if let ca { tls.trust = .pem(rest.removeFirst(), name: "\(ca)") }
                return try TLSContext.client(tls)
            }
        } catch {
            throw CommandFailure(.configuration, "\(error)")
        }
        return configuration
    }

    /// The time for which invalid tokens are kept, in milliseconds; 0 for forever.
    var invalidTokenAge: Int { settings.number(.invalidTokensDays) ?? 0 }
}
