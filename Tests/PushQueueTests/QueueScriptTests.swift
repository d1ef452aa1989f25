import NIOCore
import NIOPosix
import Redis
import TestSupport
import Testing

@testable import PushQueue

@Suite("Scripts and their parts")
struct QueueScriptTests {
    private static let parts = ScriptParts.embedded(.server)

    @Test("every script finds the parts that it requires", arguments: QueueScript.allCases)
    func assembled(script: QueueScript) throws {
        let source = try Self.parts.assemble(script.text)
        #expect(source == script.source && source.suffix(script.text.count) == script.text[...])
    }

    @Test("a part is included once, after the parts that it requires")
    func order() throws {
        let parts = ScriptParts([
            "a": Array("-- require: b, c\nA\n".utf8), "b": Array("-- require: c\nB\n".utf8), "c": Array("C\n".utf8),
        ])
        let source = try parts.assemble(Array("-- require: c, a\nscript\n".utf8))
        let lines = String(decoding: source, as: UTF8.self).split(separator: "\n")
        #expect(lines.filter { !$0.hasPrefix("--") } == ["C", "B", "A", "script"])
        #expect(try parts.assemble(Array("alone\n".utf8)) == Array("alone\n".utf8))
    }

    @Test("a part that does not exist is an error")
    func unknown() {
        #expect(throws: ScriptParts.Mistake.unknownPart("tmie")) {
            try Self.parts.assemble(Array("-- require: types, tmie\n".utf8))
        }
    }

    /// A missing part would show only when the line that needs it runs.
    @Test("scripts and parts require what they use, and nothing else")
    func uses() throws {
        let definitions = Self.parts.texts.mapValues(Self.definitions)
        let scripts = QueueScript.allCases.map { ("\($0)", $0.text) }
        for (name, text) in scripts + Self.parts.texts.map({ ($0.key, $0.value) }) {
            let words = Self.words(text)
            let used = definitions.filter { $0.key != name && !$0.value.isDisjoint(with: words) }.keys
            #expect(Set(used) == Set(ScriptParts.requirements(of: text)), "\(name)")
        }
    }

    /// The names that a part defines at its top level.
    private static func definitions(_ text: [UInt8]) -> Set<String> {
        Set(
            code(text).flatMap { line -> [String] in
                if let name = line.wholeMatch(of: /local function (\w+).*/)?.1 { return [String(name)] }
                guard let names = line.wholeMatch(of: /local ([\w, ]+) =.*/)?.1 else { return [] }
                return names.split(separator: /, */).map(String.init)
            })
    }

    private static func words(_ text: [UInt8]) -> Set<String> {
        // Neither the members of tables, nor text between quotes.
        Set(
            code(text).flatMap { line in
                line.replacing(/'[^']*'/, with: "''").matches(of: /(?:^|[^.\w])([A-Za-z_]\w*)(?! = [^=])/).map {
                    String($0.output.1)
                }
            })
    }

    /// Returns the lines that are not comments.
    private static func code(_ text: [UInt8]) -> [Substring] {
        String(decoding: text, as: UTF8.self).split(separator: "\n").filter { !$0.contains(/^ *--/) }
    }

    @Test(
        "keys and arguments have names: scripts index only those of which there is any number",
        arguments: QueueScript.allCases)
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
            let now = try await withCheckedThrowingContinuation { continuation in
                queue.client.eventLoop.execute { [client = queue.client, keys = queue.keys] in
                    QueueConnection(
                        client: client, keys: keys, worker: "w", limits: QueueLimits(), clock: .key(clock)
                    ).claim(count: 1, first: 1, join: true) { continuation.resume(with: $0.map(\.now)) }
                }
            }
            #expect(now == 1_800_000_000_123)
            let lease = try #require(queue.redis.run("ZSCORE", queue.keys.workers, "w").text.flatMap(Double.init))
            #expect(lease > 1_800_000_000_123 && lease < 1_800_003_600_123)
        }
    }

    @Test("only the part with the clock differs", arguments: QueueScript.allCases)
    func clockPart(script: QueueScript) {
        let source = String(decoding: script.source(clock: .key("clock")), as: UTF8.self)
        #expect(!source.contains("'TIME'"))
        let usesTime = String(decoding: script.source, as: UTF8.self).contains("'TIME'")
        #expect(source.contains("the clock is not set") == usesTime)
    }

    @Test("the same random numbers make the same stamps, except for the time")
    func random() async throws {
        try await withQueue { queue in
            try queue.push(["a"])
            let stamp = try await withCheckedThrowingContinuation { continuation in
                queue.client.eventLoop.execute { [client = queue.client, keys = queue.keys] in
                    QueueConnection(
                        client: client, keys: keys, worker: "w", limits: QueueLimits(), clock: .server, random: { 36 }
                    ).claim(count: 1, first: 1, join: true) { continuation.resume(with: $0.map(\.stamp)) }
                }
            }
            #expect(stamp.hasPrefix("0010"))
        }
    }

    @Test("commands go to whatever sender is given")
    func sender() {
        let sender = AbsentRedis()
        let rates = AppRates(client: sender, keys: SharedKeys())
        var failure: QueueConnection.Failure?
        rates.reserve(1, of: "shop", perSecond: 10) { result in
            if case .failure(let error) = result { failure = error }
        }
        // The script, and the command that loads it.
        #expect(sender.count == 2)
        guard case .redis(.notConnected) = failure else { Issue.record("\(String(describing: failure))"); return }
    }
}

/// A Redis that is never reached.
private final class AbsentRedis: RedisSender {
    let eventLoop: any EventLoop = MultiThreadedEventLoopGroup.singleton.next()
    let isReady = false
    private(set) var count = 0

    func send(_ command: RedisCommand, deadline: TimeAmount?, completion: @escaping RedisClient.Completion) {
        count += 1
        completion(.failure(.notConnected(address: "nowhere", reason: "it is absent")))
    }
}
