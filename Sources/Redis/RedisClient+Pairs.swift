import NIOCore

extension RedisClient {
    /// Sends a command and, directly behind it on the same connection, one that is about what the connection has written:
    /// `WAIT` counts replicas for its own connection only, and on another would count too many.
    ///
    /// So neither is sent elsewhere: in a Cluster a command whose slot has moved fails with `MOVED` or `ASK`, for its caller
    /// to repeat both when the client is ready again.
    /// - Parameter deadline: how long each of the answers may take.
    /// - Returns: the answer to the first command, and to the second, or why there is none.
    /// - Throws: `RedisError` of the first.
    public func call(
        _ command: RedisCommand, then second: RedisCommand, deadline: TimeAmount
    ) async throws -> (RESPReply, Result<RESPReply, RedisError>) {
        let (first, second): (Result<RESPReply, RedisError>, Result<RESPReply, RedisError>) =
            await withCheckedContinuation { continuation in
                eventLoop.execute {
                    guard let server = self.route.server else {
                        let error = RedisError.notConnected(
                            address: self.topology.address, reason: "no connection is ready")
                        return continuation.resume(returning: (.failure(error), .failure(error)))
                    }
                    var answer: Result<RESPReply, RedisError>?
                    self.transmit(
                        command, RedisRequest(command: nil, timeout: deadline) { answer = $0 }, over: server)
                    // Answers come in order, and so do failures.
                    self.transmit(
                        second,
                        RedisRequest(command: nil, timeout: deadline) {
                            continuation.resume(returning: (answer ?? $0, $0))
                        }, over: server)
                }
            }
        return (try first.get(), second)
    }
}
