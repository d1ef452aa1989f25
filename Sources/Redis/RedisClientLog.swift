import Logging

struct RedisClientLog {
    let logger: Logger
    let topology: RedisTopology

    /// Logs a new connection.
    /// - Parameter recovery: the reported outage that this connection ends, if any.
    func connected(to server: RedisLocation, after recovery: ReconnectState.Recovery?) {
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

    /// Logs that another deployment has taken the place of the one that was known.
    func otherDeployment() {
        logger.error(
            "Redis is another deployment than before, at an address of the old one, which has not answered for a minute",
            metadata: ["event": "redis_other_deployment", "redis": "\(topology)"])
    }
}
