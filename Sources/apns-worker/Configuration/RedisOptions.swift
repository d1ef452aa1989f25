import ArgumentParser

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
}
