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
    /// The source of the script, after the parts that it needs.
    public let source: [UInt8]
    /// The SHA-1 of the source in hex, by which Redis knows it.
    public let digest: String
    /// The script's own file.
    public let text: [UInt8]

    public init(_ name: String, _ text: [UInt8]) {
        self.init(name, text, clock: .server)
    }

    private init(_ name: String, _ text: [UInt8], clock: ClockSource) {
        description = name
        self.text = text
        source = ScriptPart.before(text, clock: clock)
        digest = Self.digest(of: source)
    }

    /// Returns the script with another clock.
    public func reading(_ clock: ClockSource) -> QueueScript {
        clock == .server ? self : QueueScript(description, text, clock: clock)
    }

    /// Returns the SHA-1 of a source, in hex.
    public static func digest(of source: [UInt8]) -> String {
        var digest = [UInt8](repeating: 0, count: 20)
        SHA1(source, source.count, &digest)
        return digest.hex
    }

    /// Compares the names.
    public static func == (one: Self, other: Self) -> Bool { one.description == other.description }

    /// Hashes the name.
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
    public static let appendAudit = QueueScript("appendAudit", PackageResources.append_audit_lua)
    public static let shareProviderToken = QueueScript("shareProviderToken", PackageResources.share_lua)

    /// The scripts that workers run.
    public static let ofWorkers = [
        claim, reserve, announceNewest, settle, reclaim, release, gauges, stopCampaign, findInvalidTokens,
        addInvalidTokens,
        removeInvalidTokens, announceInvalidTokens, countInvalidTokens, reserveRate, takeTurns, throttleToken,
        appendAudit, shareProviderToken,
    ]
}

/// The clock that scripts read.
public enum ClockSource: Sendable, Equatable {
    /// The clock of Redis.
    case server
    /// A key that holds the time, in milliseconds since 1970. For tests: expirations still follow the clock of Redis.
    case key(String)
}

/// A file of functions that scripts share, in the folder `parts`. A script is sent after the parts whose names it or one
/// of these parts contains, so no list of dependencies is kept, and Redis compiles and runs little that is not used.
struct ScriptPart {
    let text: ScriptText
    /// The names that it defines for the files after it.
    private let names: Set<ArraySlice<UInt8>>

    /// Each part uses only those before it. `scripts/requeue` lists those of its script, in the same order.
    static let all = [
        PackageResources.base_lua, PackageResources.counters_lua, PackageResources.wrapper_lua,
        PackageResources.dead_letters_lua, PackageResources.results_lua, PackageResources.commands_lua,
        PackageResources.campaigns_lua, PackageResources.lanes_lua,
        PackageResources.claims_lua, PackageResources.attempts_lua, PackageResources.portions_lua,
        PackageResources.members_lua,
        PackageResources.shares_lua, PackageResources.invalid_tokens_lua,
    ].map(ScriptPart.init)

    private init(_ text: [UInt8]) {
        self.text = ScriptText(text)
        // The names of a definition end at `=`, at `(` or with the line. All are in its first line.
        let definitions = ScriptText.code(text).filter { $0.starts(with: "local ".utf8) }
        names = ScriptText.words(of: definitions.map { $0.prefix { !"=(".utf8.contains($0) } })
            .subtracting(["local", "function"].map { ArraySlice($0.utf8) })
    }

    /// Returns the parts that a script needs, and its text.
    static func before(_ text: [UInt8], clock: ClockSource) -> [UInt8] {
        clock.part + composed(ScriptText(text), after: [])
    }

    /// Returns the parts that a text needs beyond those that it follows, and the text.
    private static func composed(_ text: ScriptText, after given: Set<Int>) -> [UInt8] {
        let needed = needed(by: text.words, after: given)
        let known = given.union(needed)
        return needed.flatMap { inserted(into: all[$0].text, after: known) } + inserted(into: text, after: known)
    }

    /// Returns a text, with the parts of functions in these.
    private static func inserted(into text: ScriptText, after known: Set<Int>) -> [UInt8] {
        text.pieces.flatMap { piece in
            piece.isFunction ? composed(ScriptText(outside: piece.text), after: known) : Array(piece.text)
        }
    }

    /// Returns the indices of the parts that define these words, and of those that they need themselves.
    private static func needed(by words: Set<ArraySlice<UInt8>>, after given: Set<Int>) -> [Int] {
        var words = words
        var needed: [Int] = []
        for (index, part) in all.enumerated().reversed()
        where !given.contains(index) && !part.names.isDisjoint(with: words) {
            needed.append(index)
            words.formUnion(part.text.words)
        }
        return needed.reversed()
    }
}

/// The text of a script or a part. A function in it can have parts of its own, after the comment ``marker``: they are defined only
/// when it runs, because each definition takes time in each call of a script.
struct ScriptText {
    static let marker: StaticString = "    -- The parts that only this function needs.\n"

    let bytes: [UInt8]
    /// The text in pieces: a function from its marker to its end, or what is between two.
    let pieces: [(text: ArraySlice<UInt8>, isFunction: Bool)]
    /// All names and numbers in the code outside of these functions, and the words of its strings.
    let words: Set<ArraySlice<UInt8>>

    init(_ text: [UInt8]) {
        var pieces: [(text: ArraySlice<UInt8>, isFunction: Bool)] = []
        var rest = text[...]
        while let marker = rest.range(of: Self.marker) {
            let end = rest[marker.upperBound...].range(of: "\nend\n")?.lowerBound ?? rest.endIndex
            pieces += [(rest[..<marker.upperBound], false), (rest[marker.upperBound..<end], true)]
            rest = rest[end...]
        }
        self.init(pieces + [(rest, false)])
    }

    /// A text without such functions.
    init(outside text: ArraySlice<UInt8>) { self.init([(text, false)]) }

    private init(_ pieces: [(text: ArraySlice<UInt8>, isFunction: Bool)]) {
        self.pieces = pieces
        bytes = Array(pieces.map(\.text).joined())
        words = Self.words(of: Self.code(Array(pieces.filter { !$0.isFunction }.map(\.text).joined())))
    }

    /// Returns the lines that are not comments.
    static func code(_ text: [UInt8]) -> [ArraySlice<UInt8>] {
        text.split(separator: UInt8(ascii: "\n"))
            .filter { line in !line.drop { $0 == UInt8(ascii: " ") }.starts(with: "--".utf8) }
    }

    static func words(of lines: [ArraySlice<UInt8>]) -> Set<ArraySlice<UInt8>> {
        Set(
            lines.joined(separator: [UInt8(ascii: " ")]).split { byte in
                switch byte {
                case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"): false
                case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "_"): false
                default: true
                }
            }.map { ArraySlice($0) })
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
