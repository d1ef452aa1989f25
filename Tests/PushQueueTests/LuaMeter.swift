import NIOCore
import Operations
import QueueTestSupport
import TestSupport

@testable import PushQueue
@testable import Redis

/// A client whose scripts record the bytes that pass through Lua: the arguments and the replies of the commands that they
/// call, and the texts that they decode.
final class LuaMeter: RedisSender, Sendable {
    private let client: RedisClient
    private let key: String
    private let sources: [String: String]

    /// - Parameter queue: the queue whose client is used. The numbers are kept in a key that is not one of the queue's.
    init(_ queue: TestQueue) {
        client = queue.client
        let key = "lua-bytes-" + queue.keys.jobs
        self.key = key
        sources = Dictionary(
            uniqueKeysWithValues: (QueueScript.ofWorkers + QueueScript.ofOperators).map {
                ($0.digest, Self.metered(String(decoding: $0.source, as: UTF8.self), key))
            })
    }

    /// Returns the numbers of bytes of the calls since the last reading.
    func take(_ queue: TestQueue) throws -> [Int] {
        defer { _ = try? queue.redis.run("DEL", key) }
        return try queue.texts("LRANGE", key, "0", "-1").compactMap { Int($0) }
    }

    /// Runs an operator's script.
    func run(_ script: QueueScript, _ keys: [String], _ arguments: [String], _ queue: TestQueue) throws -> RedisValue {
        let source = sources[script.digest] ?? ""
        return try queue.redis.run((["EVAL", source, "\(keys.count)"] + keys + arguments).map { Array($0.utf8) })
    }

    // MARK: RedisSender

    var eventLoop: any EventLoop { client.eventLoop }
    var isReady: Bool { client.isReady }

    func send(_ command: RedisCommand, deadline: TimeAmount?, completion: @escaping RedisCommand.Completion) {
        client.send(metered(command), deadline: deadline, completion: completion)
    }

    private func metered(_ command: RedisCommand) -> RedisCommand {
        var (arguments, at) = ([ByteBuffer](), command.arguments.readerIndex)
        for length in command.lengths {
            arguments.append(command.arguments.getSlice(at: at, length: length) ?? ByteBuffer())
            at += length
        }
        guard arguments.count > 2, String(buffer: arguments[0]).hasPrefix("EVAL") else { return command }
        let script = String(buffer: arguments[1])
        let digest = script.utf8.count == 40 ? script : QueueScript.digest(of: Array(script.utf8))
        guard let source = sources[digest] else { return command }
        var changed = RedisCommand("EVAL", expecting: arguments.count)
        changed.append(source)
        for argument in arguments[2...] { changed.append(argument) }
        return changed
    }

    private static func metered(_ source: String, _ key: String) -> String {
        """
        local server, json, bytes = redis, cjson, 0
        local function size(value)
            if type(value) == 'string' then return #value end
            local sum = 0
            for _, one in pairs(type(value) == 'table' and value or {}) do sum = sum + size(one) end
            return sum
        end
        local function metered(call)
            return function(...)
                local reply = call(...)
                bytes = bytes + size({ ... }) + size(reply)
                return reply
            end
        end
        local redis = setmetatable({ call = metered(server.call), pcall = metered(server.pcall) }, { __index = server })
        local cjson = setmetatable({ decode = function(text)
            bytes = bytes + #text
            return json.decode(text)
        end }, { __index = json })
        local function script()
        \(source)
        end
        local reply = script()
        server.call('RPUSH', '\(key)', bytes)
        return reply
        """
    }
}
