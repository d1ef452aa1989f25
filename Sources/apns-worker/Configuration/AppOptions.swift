import ArgumentParser

/// The app of a worker that has one, or what the apps of a worker that has several have in common.
struct AppOptions: ParsableArguments {
    @Option(help: "The app's bundle identifier, the topic of jobs that name none. (APNS_WORKER_TOPIC)")
    var topic: String?

    @Option(help: "The signing key, AuthKey_….p8 of Apple's developer site. (APNS_WORKER_KEY, or …_KEY_BASE64)")
    var key: String?

    @Option(help: "The signing key's ten-character ID. (APNS_WORKER_KEY_ID; default that in the file's name)")
    var keyID: String?

    @Option(help: "The team's ten-character ID. (APNS_WORKER_TEAM_ID)")
    var teamID: String?

    @Option(
        help: """
            While keys are rotated: the key to go on with when APNs refuses the first. (APNS_WORKER_NEXT_KEY, or \
            …_NEXT_KEY_BASE64)
            """)
    var nextKey: String?

    @Option(help: "That key's ID. (APNS_WORKER_NEXT_KEY_ID; default that in the file's name)")
    var nextKeyID: String?

    @Option(
        help: """
            Instead of a key: the client certificate, PEM with its chain or PKCS#12. (APNS_WORKER_CERTIFICATE, or \
            …_CERTIFICATE_BASE64)
            """)
    var certificate: String?

    @Option(
        help: """
            The certificate's private key, PEM. (APNS_WORKER_CERTIFICATE_KEY, or …_CERTIFICATE_KEY_BASE64; default the \
            certificate's file)
            """)
    var certificateKey: String?

    @Option(
        help: """
            A file with the passphrase of the private key or the PKCS#12 file. (APNS_WORKER_CERTIFICATE_PASSPHRASE_FILE, \
            or …_CERTIFICATE_PASSPHRASE)
            """)
    var certificatePassphraseFile: String?

    @Option(
        help: """
            http2, or gateway for the binary protocol that Apple has retired and others still speak. \
            (APNS_WORKER_TRANSPORT; default http2)
            """)
    var transport: String?

    @OptionGroup(title: "Binary gateway (--transport gateway)")
    var gateway: GatewayFlags

    @Option(help: "production, sandbox, or host:port of another server. (APNS_WORKER_ENDPOINT; default production)")
    var endpoint: String?

    @Option(help: "A PEM file with the CAs to trust, instead of the system's. (APNS_WORKER_CA)")
    var ca: String?

    @Option(
        help: """
            An HTTP proxy, http://[user:password@]host:port, or none. (APNS_WORKER_PROXY; default by HTTPS_PROXY and \
            NO_PROXY)
            """)
    var proxy: String?

    @Option(help: "Connections per lane that are kept while nothing is sent. (APNS_WORKER_MIN_CONNECTIONS; default 1)")
    var minConnections: Int?

    @Option(help: "Connections per lane at the most. (APNS_WORKER_MAX_CONNECTIONS; default 4)")
    var maxConnections: Int?

    @Option(help: "Requests at once on a connection, if APNs allows them. (APNS_WORKER_MAX_STREAMS; default 1000)")
    var maxStreams: Int?

    @Option(help: "How long a request may go unanswered, in ms. (APNS_WORKER_REQUEST_TIMEOUT; default 20000)")
    var requestTimeout: Int?

    @Option(
        help: """
            After how many idle seconds a connection beyond the least is closed. (APNS_WORKER_IDLE_TIMEOUT; default 300)
            """)
    var idleTimeout: Int?

    @Option(help: "After how many seconds a connection is replaced. (APNS_WORKER_MAX_CONNECTION_AGE; default never)")
    var maxConnectionAge: Int?

    @Option(
        help: """
            Notifications a second at the most, of all workers together. (APNS_WORKER_MAX_PER_SECOND; default as many as \
            APNs takes)
            """)
    var maxPerSecond: Int?

    @Option(
        help: """
            The percentage of tokens that APNs may call bad before the app is paused and none is marked, 100 for never. \
            (APNS_WORKER_MAX_BAD_TOKENS; default 50)
            """)
    var maxBadTokens: Int?

    /// What the flags say.
    var given: [SettingKey: String] {
        let texts = SettingKey.given([
            (.topic, topic), (.key, key), (.keyID, keyID), (.teamID, teamID), (.nextKey, nextKey),
            (.nextKeyID, nextKeyID), (.certificate, certificate), (.certificateKey, certificateKey),
            (.certificatePassphraseFile, certificatePassphraseFile), (.transport, transport), (.endpoint, endpoint),
            (.ca, ca), (.proxy, proxy),
        ])
        let numbers = SettingKey.given([
            (.minConnections, minConnections), (.maxConnections, maxConnections), (.maxStreams, maxStreams),
            (.requestTimeout, requestTimeout), (.idleTimeout, idleTimeout), (.maxConnectionAge, maxConnectionAge),
            (.maxPerSecond, maxPerSecond), (.maxBadTokens, maxBadTokens),
        ])
        return texts.merging(numbers) { $1 }.merging(gateway.given) { $1 }
    }
}
