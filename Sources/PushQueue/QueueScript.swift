import NIOCore
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
    /// The source of the script, after the parts that all scripts share.
    public let source: [UInt8]
    /// The script's own file.
    package let text: [UInt8]

    package init(_ name: String, _ text: [UInt8]) {
        description = name
        self.text = text
        source = ScriptParts.before(text, clock: .server)
    }

    /// Returns the source of the script, after the parts that all scripts share.
    /// - Parameter clock: the clock that the script reads.
    package func source(clock: ClockSource) -> [UInt8] {
        clock == .server ? source : ScriptParts.before(text, clock: clock)
    }

    /// Compares the names.
    public static func == (one: Self, other: Self) -> Bool { one.description == other.description }

    /// Hashes the name.
    public func hash(into hasher: inout Hasher) { hasher.combine(description) }
}

// SwiftPM names embedded files without their folder, so each name can occur only once.
extension QueueScript {
    // The queue.
    package static let claim = QueueScript("claim", PackageResources.claim_lua)
    package static let reserve = QueueScript("reserve", PackageResources.reserve_lua)
    package static let settle = QueueScript("settle", PackageResources.settle_lua)
    package static let reclaim = QueueScript("reclaim", PackageResources.reclaim_lua)
    package static let release = QueueScript("release", PackageResources.release_lua)
    package static let gauges = QueueScript("gauges", PackageResources.gauges_lua)
    package static let stopCampaign = QueueScript("stopCampaign", PackageResources.stop_campaign_lua)
    // Invalid tokens.
    package static let findInvalidTokens = QueueScript("findInvalidTokens", PackageResources.find_lua)
    package static let addInvalidTokens = QueueScript("addInvalidTokens", PackageResources.add_lua)
    package static let removeInvalidTokens = QueueScript("removeInvalidTokens", PackageResources.remove_lua)
    package static let announceInvalidTokens = QueueScript("announceInvalidTokens", PackageResources.announce_lua)
    package static let countInvalidTokens = QueueScript("countInvalidTokens", PackageResources.size_lua)
    // The state that workers share.
    package static let gate = QueueScript("gate", PackageResources.gate_lua)
    package static let reserveRate = QueueScript("reserveRate", PackageResources.reserve_rate_lua)
    package static let throttleToken = QueueScript("throttleToken", PackageResources.throttle_token_lua)
    package static let appendAudit = QueueScript("appendAudit", PackageResources.append_audit_lua)
    package static let shareProviderToken = QueueScript("shareProviderToken", PackageResources.share_lua)

    /// The scripts that workers run.
    package static let ofWorkers = [
        claim, reserve, settle, reclaim, release, gauges, stopCampaign, findInvalidTokens, addInvalidTokens,
        removeInvalidTokens, announceInvalidTokens, countInvalidTokens, gate, reserveRate, throttleToken,
        appendAudit, shareProviderToken,
    ]
}

/// The clock that scripts read.
package enum ClockSource: Sendable, Equatable {
    /// The clock of Redis.
    case server
    /// A key that holds the time, in milliseconds since 1970. For tests: expirations still follow the clock of Redis.
    case key(String)
}

/// The functions that scripts share, in the folder `parts`. All parts are before every script, in one order: a script
/// that needs another function changes no list, and Redis keeps each source anyway.
private enum ScriptParts {
    /// Each part uses only those before it. `scripts/requeue` has the same order.
    private static let all: [UInt8] =
        PackageResources.base_lua + PackageResources.counters_lua + PackageResources.wrapper_lua
        + PackageResources.dead_letters_lua + PackageResources.results_lua + PackageResources.campaigns_lua
        + PackageResources.claims_lua + PackageResources.portions_lua + PackageResources.members_lua
        + PackageResources.shares_lua + PackageResources.invalid_tokens_lua

    static func before(_ text: [UInt8], clock: ClockSource) -> [UInt8] { clock.part + all + text }
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
