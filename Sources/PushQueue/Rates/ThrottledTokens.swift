import NIOCore
import Redis

/// The device tokens that APNs throttles. No worker sends to them for a while.
///
/// Not thread-safe. Use it only on the client's event loop; completions are called there, too.
public struct ThrottledTokens {
    private let key: String
    private let changes: String
    private let client: any RedisSender
    private let scripts: ScriptRunner

    /// - Parameter client: a client for the slot of the shared keys.
    public init(client: any RedisSender, keys: SharedKeys, clock: ClockSource = .server) {
        (key, changes) = (keys.throttledTokens, keys.invalidTokenChanges)
        self.client = client
        scripts = ScriptRunner(client: client, clock: clock)
    }

    /// Adds a token for all workers, and removes those whose pause has ended. Works on a Redis whose memory is full.
    /// - Parameter until: the end of the token's pause, in milliseconds since 1970.
    public func add(_ token: ByteBuffer, until: Int64, completion: @escaping Completion<Void>) {
        scripts.run(
            .throttleToken, [key, changes],
            arguments: { command in
                command.append(token)
                command.append(Int(until))
            }, completion: completion, reading: { _ = $0.number() })
    }

    /// Counts the tokens, including those whose pause has ended.
    public func count(completion: @escaping Completion<Int>) {
        client.send(RedisCommand("ZCARD", key)) { result in
            completion(result.mapError(QueueFailure.redis).map { $0.root.number ?? 0 })
        }
    }

    /// Finds the candidates that APNs throttles, each with the end of its pause (ms since 1970), which may have passed.
    /// - Parameter candidates: lower-case hex, at most a few thousand.
    public func find(
        _ candidates: TokenList,
        completion: @escaping Completion<[(token: ByteBuffer, until: Int64)]>
    ) {
        let tokens = candidates.asked
        guard !tokens.isEmpty else { return completion(.success([])) }
        var command = RedisCommand("ZMSCORE", key)
        for token in tokens { command.append(token) }
        client.send(command) { result in
            completion(
                result.mapError(QueueFailure.redis).map { reply in
                    zip(tokens, reply.root.children).compactMap { token, score in
                        score.string.flatMap(Double.init).map { (token, Int64(bounding: $0)) }
                    }
                })
        }
    }
}
