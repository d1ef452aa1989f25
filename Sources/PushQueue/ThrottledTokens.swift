import NIOCore
import Redis

/// The device tokens that APNs throttles, which no worker sends to for a while.
///
/// Not thread-safe. Use it only on the client's event loop; completions are called there, too.
public struct ThrottledTokens {
    /// The maximum number of tokens that are read; there are rarely more than a few.
    private static let maximumCount = 1000
    /// The maximum pause, in milliseconds: longer ones are due to a clock that was set back since.
    private static let longestPause: Int64 = 3_600_000

    private let key: String
    private let client: any RedisSender
    private let scripts: ScriptRunner

    /// - Parameter client: a client for the slot of the shared keys.
    public init(client: any RedisSender, keys: SharedKeys) {
        self.init(client: client, keys: keys, clock: .server)
    }

    package init(client: any RedisSender, keys: SharedKeys, clock: ClockSource) {
        key = keys.throttledTokens
        self.client = client
        scripts = ScriptRunner(client: client, clock: clock)
    }

    /// Adds a token for all workers, and removes those whose time has passed. Works on a Redis whose memory is full.
    /// - Parameter until: the time at which it can be sent to again, in milliseconds since 1970.
    public func add(
        _ token: ByteBuffer, until: Int64, completion: @escaping (Result<Void, QueueConnection.Failure>) -> Void
    ) {
        scripts.run(
            .throttleToken, [key],
            arguments: { command in
                command.append(token)
                command.append(Int(until))
            }, completion: completion, reading: { _ = $0.number() })
    }

    /// Reads the tokens that must not be sent to now, each with the end of that (ms since 1970).
    public func read(
        now: Int64,
        completion: @escaping (Result<[(token: ByteBuffer, until: Int64)], QueueConnection.Failure>) -> Void
    ) {
        let command = RedisCommand(
            "ZRANGEBYSCORE", key, "(\(now)", "\(now + Self.longestPause)", "WITHSCORES", "LIMIT", "0",
            "\(Self.maximumCount)")
        client.send(command) { result in
            completion(
                result.mapError(QueueConnection.Failure.redis).map { reply in
                    var tokens: [(token: ByteBuffer, until: Int64)] = []
                    var elements = reply.root.children
                    while let token = elements.next()?.bytes, let score = elements.next()?.string {
                        guard let until = Double(score).map({ Int64(bounding: $0) }) else { continue }
                        tokens.append((token, until))
                    }
                    return tokens
                })
        }
    }
}
