import Logging

/// The log lines of one client.
struct RedisClientLog {
    private let logger: Logger
    private let topology: RedisTopology
    private var hasReportedCluster = false

    init(_ logger: Logger, topology: RedisTopology) {
        self.logger = logger
        self.topology = topology
    }

    /// Logs a new connection.
    /// - Parameter recovery: the reported outage that this connection ends, if any.
    func connected(to server: RedisEndpoint.Location, after recovery: ReconnectState.Recovery?) {
        var metadata: Logger.Metadata = ["redis": "\(topology)", "server": "\(server.address)"]
        if let recovery {
            metadata["event"] = "redis_back"
            metadata["after_ms"] = "\(recovery.after.nanoseconds / 1_000_000)"
            metadata["failures"] = "\(recovery.failures)"
            logger.notice("connected to Redis again", metadata: metadata)
        } else {
            metadata["event"] = "redis_connected"
            logger.debug("connected to Redis", metadata: metadata)
        }
    }

    /// Logs a lost connection or a failed attempt: as a warning if it is the first for some time.
    func failed(_ error: RedisError, _ retry: ReconnectState.Retry) {
        logger.log(
            level: retry.isReported ? .warning : .debug, "\(error.headline)",
            metadata: [
                "event": "redis_lost", "redis": "\(topology)", "retry_in_ms": "\(retry.delay.nanoseconds / 1_000_000)",
                "failures": "\(retry.failures)",
            ])
    }

    /// Logs, once, that the URL's only server is a node of a Cluster.
    mutating func serverIsClusterNode() {
        guard !hasReportedCluster else { return }
        hasReportedCluster = true
        logger.error(
            "the Redis server is a node of a Cluster: begin the Redis URL with redis+cluster://",
            metadata: ["event": "redis_is_cluster", "redis": "\(topology)"])
    }
}
