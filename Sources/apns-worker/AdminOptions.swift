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

    /// The address; `nil` where no port was given.
    func address() throws -> (host: String, port: Int)? {
        let host = Setting.text(adminHost, "APNS_WORKER_ADMIN_HOST") ?? "127.0.0.1"
        guard let port = try Setting.number(adminPort, "APNS_WORKER_ADMIN_PORT", in: 0...65_535) else { return nil }
        return (host, port)
    }
}
