import NIOCore
import Redis

/// Runs scripts on one server by their digests. The first call of a script sends its source with `EVAL`, which also loads it. If
/// the server does not know a digest, the call is sent again, after later calls. That happens only if the server forgets scripts: after a
/// restart, a failover or `SCRIPT FLUSH`.
///
/// Not thread-safe. Use it only on the client's event loop; completions are called there, too.
final class ScriptRunner {
    private let client: any RedisSender
    private let clock: ClockSource
    /// The scripts whose source was sent, with ``clock``.
    private var sent: [QueueScript: QueueScript] = [:]

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
        completion: @escaping Completion<Value>,
        reading read: @escaping (inout ScriptReply) -> Value
    ) {
        let (script, isFirst) = sent[script].map { ($0, false) } ?? (script.reading(clock), true)
        func complete(_ result: Result<RESPReply, RedisError>) {
            completion(
                result.mapError(QueueFailure.redis).flatMap { reply in
                    Result { () throws(QueueFailure) in try ScriptReply.read(reply, of: script.description, read) }
                })
        }
        func command(bySource: Bool) -> RedisCommand {
            script.command(
                bySource: bySource, keyNames, then: moreKeys, expecting: count, bytes: count * 8, arguments: arguments)
        }
        if isFirst {
            sent[script] = script
            return client.send(command(bySource: true), completion: complete)
        }
        client.send(command(bySource: false)) { [client] result in
            if case .failure(let error) = result, error.isUnknownScript {
                return client.send(command(bySource: true), completion: complete)
            }
            complete(result)
        }
    }
}
