import CHiredis
import Foundation

/// A reply that tests can compare.
package indirect enum RedisValue: Equatable, Sendable, ExpressibleByStringLiteral, ExpressibleByIntegerLiteral {
    case string(String)
    /// A string that is not UTF-8.
    case bytes([UInt8])
    /// A status such as `OK`.
    case status(String)
    case error(String)
    case integer(Int)
    case null
    case array([RedisValue])

    package init(stringLiteral value: String) { self = .string(value) }
    package init(integerLiteral value: Int) { self = .integer(value) }

    package var text: String? {
        switch self {
        case .string(let text), .status(let text), .error(let text): text
        default: nil
        }
    }

    /// The value of an integer, or of a string of digits.
    package var number: Int? {
        if case .integer(let number) = self { return number }
        return text.flatMap { Int($0) }
    }

    package var elements: [RedisValue]? {
        if case .array(let elements) = self { return elements }
        return nil
    }

    package init(_ reply: redisReply) {
        let bytes = UnsafeRawBufferPointer(start: reply.str, count: reply.str == nil ? 0 : Int(reply.len))
        switch reply.type {
        case REDIS_REPLY_STATUS: self = .status(String(decoding: bytes, as: UTF8.self))
        case REDIS_REPLY_ERROR: self = .error(String(decoding: bytes, as: UTF8.self))
        case REDIS_REPLY_INTEGER: self = .integer(Int(reply.integer))
        case REDIS_REPLY_NIL: self = .null
        case REDIS_REPLY_ARRAY:
            self = .array((0..<Int(reply.elements)).compactMap { reply.element[$0].map { RedisValue($0.pointee) } })
        default:
            self = String(validating: bytes, as: UTF8.self).map { .string($0) } ?? .bytes(Array(bytes))
        }
    }
}

/// A blocking connection of hiredis' own client, which is not the code that is tested.
package final class RedisTestConnection {
    private let context: UnsafeMutablePointer<redisContext>

    /// - Parameter timeout: the limit for the connection, and for each command, in seconds.
    package init(port: Int, password: String? = nil, timeout: Double = 60) throws {
        let limit = timeval(tv_sec: Int(timeout), tv_usec: Int(timeout.truncatingRemainder(dividingBy: 1) * 1e6))
        guard let context = redisConnectWithTimeout("127.0.0.1", Int32(port), limit) else {
            throw RedisServer.Failure(description: "no memory for a connection to redis-server")
        }
        self.context = context
        guard context.pointee.err == 0 else { throw failure }
        redisSetTimeout(context, limit)
        if let password { try run("AUTH", password) }
    }

    deinit { redisFree(context) }

    /// Runs a command. If Redis answers with an error, that is the returned value.
    @discardableResult
    package func run(_ command: String...) throws -> RedisValue {
        try run(command.map { Array($0.utf8) })
    }

    /// Runs a command of any bytes. If Redis answers with an error, that is the returned value.
    @discardableResult
    package func run(_ command: [[UInt8]]) throws -> RedisValue {
        let lengths = command.map(\.count)
        let bytes = command.map { argument in
            let copy = UnsafeMutableRawBufferPointer.allocate(byteCount: argument.count, alignment: 1)
            copy.copyBytes(from: argument)
            return copy
        }
        defer { for copy in bytes { copy.deallocate() } }
        var pointers = bytes.map { UnsafePointer<CChar>?($0.baseAddress!.assumingMemoryBound(to: CChar.self)) }
        guard let reply = redisCommandArgv(context, Int32(command.count), &pointers, lengths) else { throw failure }
        defer { freeReplyObject(reply) }
        return RedisValue(reply.assumingMemoryBound(to: redisReply.self).pointee)
    }

    /// Returns the contents of a key: its string, or its elements. The elements of sorted sets and hashes are pairs.
    package func value(of key: String) throws -> RedisValue {
        switch try run("TYPE", key).text {
        case "list": try run("LRANGE", key, "0", "-1")
        case "set": try run("SMEMBERS", key)
        case "zset": try run("ZRANGE", key, "0", "-1", "WITHSCORES")
        case "hash": try run("HGETALL", key)
        case "stream": try run("XRANGE", key, "-", "+")
        default: try run("GET", key)
        }
    }

    /// Returns the number of calls of each command, such as `client|setname`, including calls in scripts. Counts from the server's last
    /// CONFIG RESETSTAT.
    package func calls() throws -> [String: Int] {
        guard let statistics = try run("INFO", "commandstats").text else {
            throw RedisServer.Failure(description: "redis-server did not return its statistics")
        }
        return statistics.matches(of: /cmdstat_([^:]+):calls=(\d+)/).reduce(into: [:]) { $0[String($1.1)] = Int($1.2) }
    }

    /// Returns the used memory in bytes.
    package func usedMemory() throws -> Int {
        guard let used = try run("INFO", "memory").text?.firstMatch(of: /used_memory:(\d+)/).flatMap({ Int($0.1) })
        else { throw RedisServer.Failure(description: "redis-server did not return its memory") }
        return used
    }

    private var failure: RedisServer.Failure {
        withUnsafeBytes(of: &context.pointee.errstr) { text in
            RedisServer.Failure(
                description: "redis-server: " + String(decoding: text.prefix { $0 != 0 }, as: UTF8.self))
        }
    }
}

extension RedisServer {
    package func connect() throws -> RedisTestConnection {
        try RedisTestConnection(port: port, password: password)
    }

    /// Runs a command with a new connection. If Redis answers with an error, that is the returned value.
    @discardableResult
    package func run(_ command: String...) throws -> RedisValue {
        try connect().run(command.map { Array($0.utf8) })
    }

    /// Limits the memory so that a share of it is used. A large key makes the buffers of clients, which come and go, less than 1 %.
    package func fill(percent: Int) throws {
        try run("SET", "ballast", String(repeating: "x", count: 100_000_000))
        try run("CONFIG", "SET", "maxmemory", "\(connect().usedMemory() * 100 / percent)")
    }

    /// Gives a node slots of its Cluster, by default all.
    package func addSlots(_ slots: Range<Int> = 0..<16384) throws {
        // Before Redis 7 there is no CLUSTER ADDSLOTSRANGE.
        let command = ["CLUSTER", "ADDSLOTS"] + slots.map(String.init)
        let answer = try connect().run(command.map { Array($0.utf8) })
        guard answer == .status("OK") else { throw Failure(description: "CLUSTER ADDSLOTS: \(answer)") }
    }

    package func calls() throws -> [String: Int] { try connect().calls() }

    /// Returns how many scripts were run since the server's last CONFIG RESETSTAT.
    package func scriptCalls() throws -> Int {
        let calls = try calls()
        return calls["eval", default: 0] + calls["evalsha", default: 0]
    }
}
