import NIOCore

extension RedisClient {
    /// Sends two commands, one directly behind the other on the same connection.
    ///
    /// For `WAIT`, which counts the replicas that have what its own connection has written; on another connection it may
    /// count too many. So neither command is redirected: in a Cluster, one whose slot has moved fails with `MOVED` or
    /// `ASK`, and the caller repeats both when the client is ready again.
    /// - Parameter deadline: how long each of the answers may take.
    /// - Returns: the answer to the first command, and the result of the second.
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
