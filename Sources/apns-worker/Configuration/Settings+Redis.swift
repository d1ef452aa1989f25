import ArgumentParser
import PushQueue
import Redis
import TLS

// Where Redis is, and what the keys there begin with.
extension Settings {
    var keyPrefix: String { text(.prefix) ?? "" }

    var sharedKeys: SharedKeys { SharedKeys(prefix: keyPrefix) }

    func redisTopology() throws -> RedisTopology {
        guard let url = value(.redisURL) else {
            throw ValidationError("there is no URL of Redis; give one with --redis")
        }
        do {
            return try RedisTopology(url: url.text)
        } catch {
            throw ValidationError("\(url.place): \(error)")
        }
    }

    /// How to connect to it.
    func redisClient() throws -> RedisClientConfiguration {
        var configuration = RedisClientConfiguration()
        let ca = text(.redisCA)
        let certificate = text(.redisCertificate)
        let key = text(.redisCertificateKey)
        guard ca != nil || certificate != nil || key != nil else { return configuration }
        guard try redisTopology().usesTLS else {
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
}
