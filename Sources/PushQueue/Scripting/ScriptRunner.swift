import NIOCore
import Redis

/// Runs scripts on one server by their digests. The first call of a script sends its source with `EVAL`, which also loads it. A digest that
/// the server does not know would have to be sent again, after later calls. That happens only if the server forgets scripts: after a
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

extension QueueScript {
    /// Runs the script once, by its digest. A server that does not know it gets its source.
    /// - Parameters:
    ///   - count: the approximate number of arguments, and `bytes` their size.
    ///   - arguments: appends them; called again if the source of the script must be sent.
    /// - Throws: `RedisError`, or ``QueueFailure/unexpectedReply(_:)``.
    public func run<Value>(
        _ client: RedisClient, _ keys: [String], then moreKeys: [ByteBuffer] = [], expecting count: Int = 16,
        bytes: Int = 1024,
        arguments: (inout RedisCommand) -> Void, reading read: (inout ScriptReply) -> Value
    ) async throws -> Value {
        func call(bySource: Bool) async throws -> RESPReply {
            try await client.call(
                command(
                    bySource: bySource, keys, then: moreKeys, expecting: count, bytes: bytes, arguments: arguments))
        }
        let reply: RESPReply
        do {
            reply = try await call(bySource: false)
        } catch let error as RedisError where error.isUnknownScript {
            reply = try await call(bySource: true)
        }
        return try ScriptReply.read(reply, of: description, read)
    }

    /// Returns the command that runs the script by its digest or, on any server, by its source.
    public func command(
        bySource: Bool, _ keyNames: [String], then moreKeys: [ByteBuffer] = [], expecting count: Int, bytes: Int,
        arguments: (inout RedisCommand) -> Void
    ) -> RedisCommand {
        let keyCount = keyNames.count + moreKeys.count
        var command = RedisCommand(
            bySource ? "EVAL" : "EVALSHA", expecting: count + keyCount + 2,
            bytes: 512 + bytes + (bySource ? source.count : 0))
        if bySource { command.append(source) } else { command.append(digest) }
        command.append(keyCount)
        for key in keyNames { command.append(key) }
        for key in moreKeys { command.append(key) }
        arguments(&command)
        return command
    }
}

extension RedisError {
    fileprivate var isUnknownScript: Bool {
        if case .server(let error) = self { error.prefix == "NOSCRIPT" } else { false }
    }
}
