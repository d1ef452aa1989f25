import NIOCore
import NIOPosix
import Operations
import QueueTestSupport
import Redis
import TestSupport
import Testing

@testable import PushQueue

@Suite("Scripts")
struct QueueScriptTests {
    private static let all = QueueScript.ofWorkers + QueueScript.ofOperators
    private static let globals: Set = [
        "cjson", "cmsgpack", "function", "ipairs", "math", "next", "pairs", "pcall", "redis", "string", "table",
        "tonumber",
        "tostring", "type", "unpack",
    ]

    /// Redis reports a name without a definition only when the line with it runs.
    @Test("scripts call only functions that are defined", arguments: all)
    func calls(script: QueueScript) throws {
        let called = Self.names(in: script.source, of: /(?:^|[^.:\w])([a-z]\w*)\(/)
        let defined = Self.definitions(script.source)
        #expect(called.subtracting(defined).subtracting(Self.globals + ["and", "if", "not", "or", "return"]) == [])
    }

    @Test("scripts use everything that the shared parts define")
    func uses() {
        let parts = ScriptParts.all.sorted { $0.key < $1.key }.flatMap(\.value)
        var lines: [Substring: Int] = [:]
        for line in Self.code(parts) + Self.all.flatMap({ Self.code($0.text) }) {
            // Of `state.pause`, only `state` is a name.
            let words = line.replacing("..", with: " ").split { !($0.isLetter || $0.isNumber || "_.".contains($0)) }
            for name in Set(words.map { $0.prefix { $0 != "." } }) { lines[name, default: 0] += 1 }
        }
        for name in Self.definitions(parts, atTopLevel: true) { #expect(lines[name[...]] ?? 0 > 1, "\(name)") }
    }

    /// Each superfluous part is sent and defined in each call.
    @Test(
        "scripts and parts need only parts that they use",
        arguments: all.map { ($0.description, $0.text) } + ScriptParts.all.map { ($0, $1) })
    func needs(name: String, text: [UInt8]) throws {
        let used = Set(Self.code(text).flatMap { $0.split { !($0.isLetter || $0.isNumber || $0 == "_") } })
        let lines = String(decoding: text, as: UTF8.self).split(separator: "\n").filter { $0.contains("-- Needs: ") }
        for part in lines.flatMap({ $0.drop { $0 != ":" }.dropFirst().split(separator: " ") }) where part != "time" {
            let definitions = Self.definitions(try #require(ScriptParts.all[String(part)]), atTopLevel: true)
            #expect(!definitions.isDisjoint(with: used.map(String.init)), "\(name) uses nothing of \(part)")
        }
    }

    /// The names of functions, their parameters, and variables.
    private static func definitions(_ text: [UInt8], atTopLevel: Bool = false) -> Set<String> {
        let lines = code(text).filter { !atTopLevel || !$0.hasPrefix(" ") }.joined(separator: "\n")
        var names = Set(lines.matches(of: /local function (\w+)/).map { String($0.1) })
        for list in lines.matches(of: /local ([\w, \n]+?)(?: =|\n)/).map(\.1) { names.formUnion(separated(list)) }
        guard !atTopLevel else { return names }
        for list in lines.matches(of: /function ?\w*\(([\w, ]*)\)/).map(\.1) { names.formUnion(separated(list)) }
        return names
    }

    private static func separated(_ names: Substring) -> [String] {
        names.split { ", \n".contains($0) }.map(String.init).filter { $0 != "function" }
    }

    private static func names(in text: [UInt8], of pattern: Regex<(Substring, Substring)>) -> Set<String> {
        Set(
            code(text).filter { $0.contains("(") }.flatMap { line in
                line.replacing(/'[^']*'/, with: "''").matches(of: pattern).map { String($0.output.1) }
            })
    }

    private static func code(_ text: [UInt8]) -> [Substring] {
        String(decoding: text, as: UTF8.self).split(separator: "\n").filter { !$0.drop { $0 == " " }.hasPrefix("--") }
    }

    /// Lua allows 200 per function.
    @Test("scripts have at most 190 local names at once", arguments: all)
    func localNames(script: QueueScript) async throws {
        try await withQueue { queue in
            func load(after names: Int) throws -> String {
                let line = "local " + (1...names).map { "reserved_\($0)" }.joined(separator: ", ") + "\n"
                return "\(try queue.redis.run([Array("SCRIPT".utf8), Array("LOAD".utf8), line.utf8 + script.source]))"
            }
            let tooMany = "more than 200 local variables"
            let (fits, exceeds) = (try load(after: 10), try load(after: 200))
            #expect(!fits.contains(tooMany) && exceeds.contains(tooMany))
        }
    }

    @Test("a function's own parts are defined in it, before what uses them, and not at the top again")
    func partsOfFunctions() throws {
        for (script, function, own) in [
            (QueueScript.claim, "local function end_too_large(", "    local function add_to_campaign("),
            (.settle, "local function define_others(", "    local function add_to_campaign("),
        ] {
            let source = String(decoding: script.source, as: UTF8.self)
            let start = try #require(source.range(of: function))
            #expect(!source.contains("-- Needs: "))
            #expect(source.ranges(of: own.trimmingPrefix("    ")).count == 1)
            #expect(source.ranges(of: own.trimmingPrefix("    ")).allSatisfy { $0.lowerBound > start.lowerBound })
        }
    }

    @Test("keys and arguments have names: scripts index only those of which there is any number", arguments: all)
    func names(script: QueueScript) {
        for line in Self.code(script.text) where line.contains(/(KEYS|ARGV)\[\d/) {
            #expect(line.hasPrefix("local "), "\(line)")
        }
    }

    @Test("with a clock in a key, scripts read the time from it")
    func clock() async throws {
        try await withQueue { queue in
            let clock = "the 'clock' of \(queue.keys.queue)\n"
            try queue.redis.run("SET", clock, "1800000000123")
            #expect(try await queue.worker("w", clock: .key(clock)).claim(1).now == 1_800_000_000_123)
            let lease = try #require(queue.redis.run("ZSCORE", queue.keys.workers, "w").text.flatMap(Double.init))
            #expect(lease > 1_800_000_000_123 && lease < 1_800_003_600_123)
        }
    }

    @Test("only the part with the clock differs", arguments: all)
    func clockPart(script: QueueScript) {
        let source = String(decoding: script.source, as: UTF8.self)
        let other = String(decoding: script.reading(.key("clock")).source, as: UTF8.self)
        #expect(!other.contains("'TIME'") && source.contains("'TIME'") == other.contains("the clock is not set"))
        #expect(source.contains("'TIME'") || source == other)
    }

    @Test("the same random numbers make the same stamps, except for the time, of a size that Swift keeps in place")
    func random() async throws {
        try await withQueue { queue in
            try queue.push(["a"])
            let claimed: Claimed = try await queue.client.eventLoop.call { [client = queue.client, keys = queue.keys] in
                QueueConnection(client: client, keys: keys, worker: "w", limits: QueueLimits(), random: { 36 })
                    .claim(ClaimRequest(count: 1, first: 1, join: true), completion: $0)
            }
            #expect(claimed.stamp.hasPrefix("0010") && claimed.stamp.utf8.count <= 15)
        }
    }

    @Test("commands go to whatever sender is given")
    func sender() {
        let sender = AbsentRedis()
        let rates = SharedRates(client: sender, keys: SharedKeys())
        var failure: QueueFailure?
        rates.reserve(1, of: "shop", perSecond: 10) { result in
            if case .failure(let error) = result { failure = error }
        }
        #expect(sender.count == 1)
        guard case .redis(.notConnected) = failure else { Issue.record("\(String(describing: failure))"); return }
    }
}

private final class AbsentRedis: RedisSender {
    let eventLoop: any EventLoop = MultiThreadedEventLoopGroup.singleton.next()
    let isReady = false
    private(set) var count = 0

    func send(_ command: RedisCommand, deadline: TimeAmount?, completion: @escaping RedisCommand.Completion) {
        count += 1
        completion(.failure(.notConnected(address: "nowhere", reason: "it is absent")))
    }
}
