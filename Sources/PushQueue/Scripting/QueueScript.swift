import COpenSSL
import NIOCore
import PrintableText
import Redis

/// A Lua script that changes or reads keys as one atomic step. Each module has its own in its folder `Scripts`. A
/// script's file begins with its keys, arguments and reply.
///
/// Redis does not undo what a script did before it raised an error: popped jobs would be lost, pushed jobs doubled. So
/// a script reads and checks everything first, then computes, then writes. After its first write it calls only commands
/// that can't fail, or whose failure it catches (`redis.pcall`).
public struct QueueScript: Sendable, Hashable, CustomStringConvertible {
    /// The name, which no other script has.
    public let description: String
    /// The source of the script, with the parts that it needs.
    public let source: [UInt8]
    /// The SHA-1 of the source in hex. Redis identifies the script by it.
    public let digest: String
    /// The script's own file.
    public let text: [UInt8]

    public init(_ name: String, _ text: [UInt8], clock: ClockSource = .server) {
        description = name
        self.text = text
        source = ScriptParts.inserted(into: text, clock: clock)
        digest = Self.digest(of: source)
    }

    public func reading(_ clock: ClockSource) -> QueueScript {
        clock == .server ? self : QueueScript(description, text, clock: clock)
    }

    /// Returns the SHA-1 of a source, in hex.
    public static func digest(of source: [UInt8]) -> String {
        var digest = [UInt8](repeating: 0, count: 20)
        SHA1(source, source.count, &digest)
        return digest.hex
    }

    public static func == (one: Self, other: Self) -> Bool { one.description == other.description }

    public func hash(into hasher: inout Hasher) { hasher.combine(description) }
}

// SwiftPM names embedded files without their folder, so each name can occur only once.
extension QueueScript {
    // The queue.
    public static let claim = QueueScript("claim", PackageResources.claim_lua)
    public static let reserve = QueueScript("reserve", PackageResources.reserve_lua)
    public static let announceNewest = QueueScript("announceNewest", PackageResources.announce_newest_lua)
    public static let settle = QueueScript("settle", PackageResources.settle_lua)
    public static let reclaim = QueueScript("reclaim", PackageResources.reclaim_lua)
    public static let release = QueueScript("release", PackageResources.release_lua)
    public static let gauges = QueueScript("gauges", PackageResources.gauges_lua)
    public static let stopCampaign = QueueScript("stopCampaign", PackageResources.stop_campaign_lua)
    // Invalid tokens.
    public static let findInvalidTokens = QueueScript("findInvalidTokens", PackageResources.find_lua)
    public static let addInvalidTokens = QueueScript("addInvalidTokens", PackageResources.add_lua)
    public static let removeInvalidTokens = QueueScript("removeInvalidTokens", PackageResources.remove_lua)
    public static let announceInvalidTokens = QueueScript("announceInvalidTokens", PackageResources.announce_lua)
    public static let countInvalidTokens = QueueScript("countInvalidTokens", PackageResources.size_lua)
    // The state that workers share.
    public static let reserveRate = QueueScript("reserveRate", PackageResources.reserve_rate_lua)
    public static let takeTurns = QueueScript("takeTurns", PackageResources.take_turns_lua)
    public static let throttleToken = QueueScript("throttleToken", PackageResources.throttle_token_lua)
    public static let write = QueueScript("write", PackageResources.write_lua)
    public static let shareProviderToken = QueueScript("shareProviderToken", PackageResources.share_lua)

    /// The scripts that workers run.
    public static let ofWorkers = [
        claim, reserve, announceNewest, settle, reclaim, release, gauges, stopCampaign, findInvalidTokens,
        addInvalidTokens,
        removeInvalidTokens, announceInvalidTokens, countInvalidTokens, reserveRate, takeTurns, throttleToken,
        write, shareProviderToken,
    ]
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
    var isUnknownScript: Bool {
        if case .server(let error) = self { error.prefix == "NOSCRIPT" } else { false }
    }
}

/// The clock that scripts read.
public enum ClockSource: Sendable, Equatable {
    /// The clock of Redis.
    case server
    /// A key that holds the time, in milliseconds since 1970. For tests: expirations still follow the clock of Redis.
    case key(String)
}

/// The parts of scripts: files of functions that they share, in the folder `parts`. A line `-- Needs: base counters` is replaced by these
/// parts, after the parts that they need. Parts within a function are defined only when it runs, because each definition takes time in each
/// call of a script.
enum ScriptParts {
    static let needs = Array("-- Needs: ".utf8)

    static let all: [String: [UInt8]] = [
        "attempts": PackageResources.attempts_lua,
        "base": PackageResources.base_lua,
        "campaigns": PackageResources.campaigns_lua,
        "claims": PackageResources.claims_lua,
        "counters": PackageResources.counters_lua,
        "dead-letters": PackageResources.dead_letters_lua,
        "invalid-tokens": PackageResources.invalid_tokens_lua,
        "lists": PackageResources.lists_lua,
        "members": PackageResources.members_lua,
        "minutes": PackageResources.minutes_lua,
        "readings": PackageResources.readings_lua,
        "results": PackageResources.results_lua,
        "shares": PackageResources.shares_lua,
        "unread": PackageResources.unread_lua,
        "values": PackageResources.values_lua,
        "wrapper": PackageResources.wrapper_lua,
    ]

    /// Returns a text with its parts.
    static func inserted(into text: [UInt8], clock: ClockSource) -> [UInt8] {
        var given: Set<String> = []
        return inserted(into: text, clock: clock, after: &given)
    }

    /// - Parameter given: the parts that are already before the text; inserted parts are added to it.
    private static func inserted(into text: [UInt8], clock: ClockSource, after given: inout Set<String>) -> [UInt8] {
        var source: [UInt8] = []
        for line in text.split(separator: UInt8(ascii: "\n"), omittingEmptySubsequences: false) {
            let code = line.drop { $0 == UInt8(ascii: " ") }
            guard code.starts(with: needs) else {
                source += line + [UInt8(ascii: "\n")]
                continue
            }
            // The definitions within a function end with the function.
            var inner = given
            for name in String(decoding: code.dropFirst(needs.count), as: UTF8.self).split(separator: " ").map(
                String.init)
            where inner.insert(name).inserted {
                guard let part = name == "time" ? clock.part : all[name] else { fatalError("no part \(name)") }
                source += inserted(into: part, clock: clock, after: &inner)
            }
            if code.startIndex == line.startIndex { given = inner }
        }
        // Each text ends with a line feed, so its last line is empty.
        return source.dropLast()
    }
}

extension ClockSource {
    /// The part `time`.
    fileprivate var part: [UInt8] {
        switch self {
        case .server: PackageResources.time_lua
        case .key(let key): Array(Self.part(readingKey: key).utf8)
        }
    }

    private static func part(readingKey key: String) -> String {
        // Escaped byte by byte, so that a key can be any text.
        let literal = key.utf8.map { byte in
            "\\" + (byte < 10 ? "00" : byte < 100 ? "0" : "") + String(byte)
        }
        return """
            local function now_ms()
                return assert(tonumber(redis.call('GET', '\(literal.joined())')), 'the clock is not set')
            end

            -- The microseconds vary too: some scripts use their last digits as random numbers.
            local function now_us()
                local ms = now_ms()
                return ms * 1000 + ms % 1000
            end

            """
    }
}
