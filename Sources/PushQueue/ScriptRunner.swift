import NIOCore
import Redis

/// Runs scripts on one server by their digests, and sends the source of a script that the server does not know.
///
/// Not thread-safe. Use it only on the client's event loop; completions are called there, too.
final class ScriptRunner {
    private let client: any RedisSender
    private let clock: ClockSource
    private var digests: [QueueScript: String] = [:]

    /// - Parameter clock: the clock that the scripts read.
    init(client: any RedisSender, clock: ClockSource = .server) {
        self.client = client
        self.clock = clock
    }

    /// Runs a script.
    /// - Parameters:
    ///   - moreKeys: keys of any bytes, after the others.
    ///   - count: the approximate number of arguments.
    ///   - arguments: appends them; called again if the source of the script must be sent.
    ///   - read: reads the reply.
    func run<Value>(
        _ script: QueueScript, _ keyNames: [String], then moreKeys: [ByteBuffer] = [], expecting count: Int = 16,
        arguments: @escaping (inout RedisCommand) -> Void,
        completion: @escaping (Result<Value, QueueFailure>) -> Void,
        reading read: @escaping (inout ScriptReply) -> Value
    ) {
        func complete(_ result: Result<RESPReply, RedisError>) {
            completion(
                result.mapError(QueueFailure.redis).flatMap { reply in
                    Result { () throws(QueueFailure) in try ScriptReply.read(reply, of: script, read) }
                })
        }
        func make(_ name: String, _ text: (inout RedisCommand) -> Void) -> RedisCommand {
            var command = RedisCommand(
                name, expecting: count + keyNames.count + moreKeys.count + 2, bytes: 512 + count * 8)
            text(&command)
            command.append(keyNames.count + moreKeys.count)
            for key in keyNames { command.append(key) }
            for key in moreKeys { command.append(key) }
            arguments(&command)
            return command
        }
        guard let digest = digests[script] else {
            var load = RedisCommand("SCRIPT", "LOAD")
            load.append(script.source(clock: clock))
            client.send(load) { [self] result in
                if case .success(let reply) = result { digests[script] = reply.root.string }
            }
            return client.send(make("EVAL") { $0.append(script.source(clock: clock)) }, completion: complete)
        }
        client.send(make("EVALSHA") { $0.append(digest) }) { [self] result in
            // The server was restarted, or its scripts were flushed. `EVAL` also loads the script again.
            if case .failure(.server(let error)) = result, error.prefix == "NOSCRIPT" {
                return client.send(make("EVAL") { $0.append(script.source(clock: clock)) }, completion: complete)
            }
            complete(result)
        }
    }
}
