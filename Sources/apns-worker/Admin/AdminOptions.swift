import ArgumentParser

/// Where the admin port is.
struct AdminOptions: ParsableArguments {
    @Option(
        help: """
            The port for /metrics, /healthz and /readyz; 0 takes a free one, and the log tells which. Without it there is \
            none. (APNS_WORKER_ADMIN_PORT)
            """)
    var adminPort: Int?

    @Option(
        help: """
            The address that the admin port listens on; 0.0.0.0 for all, for whoever scrapes from elsewhere: it asks for no \
            password. (APNS_WORKER_ADMIN_HOST; default 127.0.0.1)
            """)
    var adminHost: String?

    /// What the flags say.
    var given: [SettingKey: String] {
        SettingKey.given([(.adminPort, adminPort)]).merging(SettingKey.given([(.adminHost, adminHost)])) { $1 }
    }
}

extension Settings {
    /// Where the admin port is; `nil` where none is to be.
    var adminAddress: (host: String, port: Int)? {
        guard let port = number(.adminPort), let host = text(.adminHost) else { return nil }
        return (host, port)
    }
}
