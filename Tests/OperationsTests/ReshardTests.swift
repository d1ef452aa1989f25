import Foundation
import Logging
import NIOCore
import PushQueue
import QueueTestSupport
import Redis
import Synchronization
import TestSupport
import Testing

@testable import Operations

@Suite("Dividing the set of invalid tokens")
struct ReshardTests {
    /// Random tokens, whose first digits differ.
    private static func tokens(_ count: Int, seed: UInt64) -> [String] {
        var random = SeededGenerator(seed: seed)
        return (0..<count).map { _ in
            (0..<4).map { _ in String(format: "%016llx", UInt64.random(in: 0...UInt64.max, using: &random)) }.joined()
        }
    }

    private static func invalid(_ token: String, at: Int64 = 5, reason: String = "Unregistered") -> InvalidToken {
        InvalidToken(
            token: ByteBuffer(string: token), at: at, reason: reason, topic: ByteBuffer(string: "com.example.app"),
            source: .apns)
    }

    private static func list(_ tokens: [String]) -> TokenList {
        var list = TokenList()
        for token in tokens { list.append(ByteBuffer(string: token)) }
        return list
    }

    /// The key that has a token, computed as docs/invalid-tokens.md describes it for other programs.
    private static func key(of token: String, _ shards: Int) throws -> String {
        guard shards > 1 else { return "push:{shared}:invalid-tokens" }
        let bits = try #require(Int(token.prefix(4).padding(toLength: 4, withPad: "0", startingAt: 0), radix: 16))
        let digit = token.dropFirst(4).first.map { String($0) } ?? "0"
        return "push:{shared.\(shards).\((bits * shards) >> 16)}:invalid-tokens:\(digit)"
    }

    private static func reshard(_ scene: OperatorScene, to shards: Int, stoppingAfter limit: Int? = nil) async throws {
        var control = ChangeControl()
        let copied = Counter()
        control.progress = { count in copied.set(count) }
        control.isStopped = { limit.map { copied.value >= $0 } ?? false }
        _ = try await scene.desk().perform(ReshardInvalidTokens(to: shards), control)
    }

    private static func isDivided(_ scene: OperatorScene, into shards: Int) async throws -> Bool {
        let division = try await scene.tokens.division()
        return division.shards == shards && division.other == nil
    }

    /// Reads all tokens in parts.
    private static func all(_ scene: OperatorScene) async throws -> [String: InvalidTokenDetails] {
        var found: [String: InvalidTokenDetails] = [:]
        try await scene.tokens.sweep(InvalidTokenFilter()) { page in
            for listed in page { found[listed.token.text] = listed.details }
            return true
        }
        return found
    }

    @Test(
        "all functions act on the union of the shards, and other programs find each token", arguments: [1, 2, 64, 1024])
    func union(shards: Int) async throws {
        try await OperatorScene.with { scene in
            if shards <= 64 {
                try await Self.reshard(scene, to: shards)
            } else {
                // A change deletes the former contents first: 4,000 keys of each shard.
                let division = TokenDivision(generation: 1, shards: shards)
                #expect(try await scene.tokens.call { $0.record(division, completion: $1) } == division)
            }
            // Tokens need not be long, and the simplest are not even divided evenly.
            let tokens = Self.tokens(300, seed: 1) + ["ab", "abcdef", "ffff0a", "0000"]
            let marked = try await scene.tokens.mark(tokens.map { Self.invalid($0, at: 7) })
            #expect(marked == Array(repeating: .added, count: tokens.count))
            #expect(try await scene.tokens.mark([Self.invalid("ab", at: 3)]) == [.known])
            for token in tokens {
                #expect(try scene.run("SISMEMBER", Self.key(of: token, shards), token) == 1, "\(token)")
            }
            #expect(try await scene.tokens.count() == tokens.count)
            let keys = try scene.texts("KEYS", "*:invalid-tokens*").filter { !$0.hasSuffix(":division") }
            let slots = Set(keys.map { $0.split(separator: ":")[1] })
            #expect(slots.count * 10 > min(shards, 64) * 9, "\(slots)")
            let asked = ["01"] + tokens.prefix(20) + ["02"] + tokens.suffix(4)
            let found = try await scene.tokens.find(Self.list(asked))
            #expect(found.map(\.token.text) == asked.filter { $0 != "01" && $0 != "02" })
            #expect(found.map(\.place) == Array(1...20) + Array(22...25))
            #expect(found.allSatisfy { $0.details.at == 7 && $0.details.reason?.text == "Unregistered" })
            #expect(try await Set(Self.all(scene).keys) == Set(tokens))
            for token in tokens.prefix(5) {
                var matches = try #require(TokenMatches(String(token.prefix(8))))
                try await matches.search(scene.tokens, for: nil)
                #expect(matches.tokens == [token] && !matches.isPartial)
            }
            #expect(try await scene.tokens.withdraw(["ab", "01"].map { ByteBuffer(string: $0) }) == 1)
            #expect(try await scene.tokens.count() == tokens.count - 1)
            let record = try await DeviceRecord.read("abcdef", scene.fleet)
            #expect(record.invalid?.at == 7 && record.registeredAt == nil)
            var unread = UnreadParts()
            let sizes = try await KeySizes.read(scene.fleet, [], &unread)
            #expect(sizes.contains { $0.type == "set" && ($0.entries > 0 || shards > 64) }, "\(sizes)")
            #expect(sizes.allSatisfy { $0.bytes >= 0 })
        }
    }

    @Test("each token is copied with its details and its day, registrations too, and the former form is deleted")
    func copies() async throws {
        try await OperatorScene.with { scene in
            let tokens = Self.tokens(2500, seed: 2)
            _ = try await scene.tokens.mark(tokens.enumerated().map { Self.invalid($1, at: Int64($0) + 1) })
            let stored = StoredInvalidTokens(scene.connection)
            try stored.add(tokens[0], .init(at: 9, day: 12_345, reason: "Old"))
            // Another program's, without details.
            try scene.run("SADD", "push:{shared}:invalid-tokens", "abcd")
            let registered = Self.tokens(1200, seed: 3)
            for (index, token) in registered.enumerated() {
                try scene.run("HSET", "push:{shared}:registrations", token, "\(1000 + index)")
            }
            let before = try await Self.all(scene)
            for shards in [16, 4, 1] {
                try await Self.reshard(scene, to: shards)
                #expect(try await Self.all(scene) == before, "\(shards)")
                let record = try await DeviceRecord.read(registered[7], scene.fleet)
                #expect(record.registeredAt == 1007)
                // A late report of a device that has registered since.
                #expect(try await scene.tokens.mark([Self.invalid(registered[7], at: 1006)]) == [.registeredSince])
                let keys = try scene.texts("KEYS", "*").filter { !$0.hasSuffix(":division") }
                let ours = keys.filter {
                    $0.contains(":invalid-tokens") && !$0.hasSuffix(":changes") || $0.contains(":registrations")
                }
                let form = shards == 1 ? "{shared}" : "{shared.\(shards)."
                #expect(ours.allSatisfy { $0.contains(form) }, "\(ours.filter { !$0.contains(form) }.prefix(3))")
            }
            #expect(try stored.details()[tokens[0]]?.day == 12_345)
            #expect(try scene.texts("KEYS", "*shared.16.*").allSatisfy { $0.hasSuffix(":division") })
            #expect(try scene.run("PTTL", "push:{shared.16.3}:invalid-tokens:division").number ?? 0 > 0)
            #expect(try await scene.audit().first == "reshard_invalid_tokens done 2501")
        }
    }

    @Test("processes that know an earlier division learn of the later one from a refusal, at each step")
    func refusals() async throws {
        try await OperatorScene.with { scene in
            let tokens = Self.tokens(64, seed: 4)
            var processes: [InvalidTokenClient] = []
            func start() async throws {
                let process = try await InvalidTokenClient.reading(scene.fleet)
                #expect(try await process.find(Self.list(tokens)).count == 64)
                processes.append(process)
            }
            _ = try await scene.tokens.mark(tokens.map { Self.invalid($0) })
            try await start()
            for shards in [16, 4] {
                try await Self.reshard(scene, to: shards, stoppingAfter: 0)
                try await start()
                try await Self.reshard(scene, to: shards)
                try await start()
            }
            processes.append(try await InvalidTokenClient.reading(scene.fleet))
            for (index, process) in processes.enumerated() {
                let token = tokens[index]
                #expect(try await process.find(Self.list(tokens)).count == tokens.count - index)
                #expect(try await process.withdraw([ByteBuffer(string: token)]) == 1)
                #expect(try await process.mark([Self.invalid("\(token)00")]) == [.added])
                #expect(try scene.run("SISMEMBER", Self.key(of: "\(token)00", 4), "\(token)00") == 1)
            }
            #expect(try scene.run("EXISTS", "push:{shared}:invalid-tokens") == 0)
        }
    }

    @Test("a division that another process makes is not mixed with this one")
    func conflicts() async throws {
        try await OperatorScene.with { scene in
            _ = try await scene.tokens.mark(Self.tokens(3000, seed: 5).map { Self.invalid($0) })
            try await Self.reshard(scene, to: 16, stoppingAfter: 1)
            await expectRefusal("finish that first, with --to 16") { try await Self.reshard(scene, to: 4) }
            let later = TokenDivision(generation: 9, shards: 16, other: (1, .switching))
            #expect(try await scene.tokens.call { $0.record(later, completion: $1) } == later)
            let division = TokenDivision(generation: 1, shards: 1, other: (16, .copying))
            #expect(try await scene.tokens.call { $0.record(division, completion: $1) } == later)
            try await Self.reshard(scene, to: 16)
            for shards in [0, -1, 3, 8192] {
                #expect(throws: FieldMistake.self) { try ReshardInvalidTokens(to: shards) }
            }
            _ = try ReshardInvalidTokens(to: 4096)
        }
    }

    @Test("a token that an interrupted attempt copied, and that was removed then, is not in the new form")
    func leftover() async throws {
        try await OperatorScene.with { scene in
            let tokens = Self.tokens(20, seed: 6)
            _ = try await scene.tokens.mark(tokens.map { Self.invalid($0) })
            try await Self.reshard(scene, to: 16, stoppingAfter: 0)
            // The attempt was killed before it noticed that the token was removed while it copied it.
            let removed = Self.tokens(1, seed: 7)[0]
            try scene.run("SADD", Self.key(of: removed, 16), removed)
            try await Self.reshard(scene, to: 16)
            #expect(try await Set(Self.all(scene).keys) == Set(tokens))
        }
    }

    @Test("an attempt that another one has overtaken copies nothing more")
    func overtaken() async throws {
        try await OperatorScene.with { scene in
            _ = try await scene.tokens.mark(Self.tokens(20, seed: 8).map { Self.invalid($0) })
            let first = TokenDivision(generation: 1, shards: 1, other: (16, .copying))
            #expect(try await scene.tokens.call { $0.record(first, completion: $1) } == first)
            try await Self.reshard(scene, to: 16, stoppingAfter: 0)
            let failure = await #expect(throws: QueueFailure.self) {
                _ = try await scene.tokens.call {
                    $0.copyTokens("push:{shared}:invalid-tokens", after: "0", first, completion: $1)
                }
            }
            #expect(failure.flatMap { TokenDivision(refusal: $0) }?.generation == 2)
        }
    }

    /// Others add, remove and register tokens while the set is divided again and again, by operators who are
    /// interrupted. Each call that has returned must hold afterwards, for each process.
    @Test("loses no token and keeps none, whatever happens during it", arguments: 0..<3)
    func model(seed: Int) async throws {
        try await OperatorScene.with { scene in
            var random = SeededGenerator(seed: UInt64(seed))
            let others = Self.tokens(1500, seed: UInt64(seed) + 10)
            _ = try await scene.tokens.mark(others.map { Self.invalid($0) })
            let (isDone, fleet) = (Counter(), scene.fleet)
            try await withThrowingTaskGroup(of: Int.self) { group in
                for worker in 0..<4 {
                    group.addTask {
                        try await Self.use(fleet, seed: UInt64(seed * 10 + worker), until: { isDone.value > 0 })
                    }
                }
                var target = 1
                for _ in 0..<6 {
                    // Each token is in one part of a copy, so more shards would make no more of them change meanwhile.
                    target = [1, 2, 8].filter { $0 != target }.randomElement(using: &random) ?? 1
                    while try await !Self.isDivided(scene, into: target) {
                        let limit = Bool.random(using: &random) ? Int.random(in: 1...1000, using: &random) : nil
                        try await Self.reshard(scene, to: target, stoppingAfter: limit)
                    }
                }
                isDone.set(1)
                var calls = 0
                for try await count in group { calls += count }
                #expect(calls > 100)
            }
            #expect(try await Set(Self.all(scene).keys).isSuperset(of: others))
        }
    }

    /// Adds a range of tokens to the shards of a set, as `add.lua` stores them. The tokens are digests of the numbers.
    private static let fill = """
        local shards, today = tonumber(ARGV[3]), math.floor(redis.call('TIME')[1] / 86400)
        for number = tonumber(ARGV[1]), tonumber(ARGV[2]) do
            local token = redis.sha1hex(number) .. string.rep('0', 24)
            local shard = math.floor(tonumber(string.sub(token, 1, 4), 16) * shards / 65536)
            local base = string.format('push:{shared.%d.%d}:invalid-tokens', shards, shard)
            redis.call('SADD', base .. ':' .. string.sub(token, 5, 5), token)
            local digest = redis.sha1hex(token)
            redis.call('HSET', base .. ':details:' .. string.sub(digest, 1, 3),
                struct.pack('>I4I1', tonumber(string.sub(digest, 4, 11), 16), tonumber(string.sub(digest, 12, 13), 16)),
                struct.pack('>I6I2I2', 1700000000000 + number, today, 0))
        end
        """

    /// Returns the memory of a token with its details, in bytes. The stream of changes is not counted: it has a bound.
    private static func bytesPerToken(_ scene: OperatorScene, since before: Int, _ count: Int) throws -> Int {
        let stream =
            try scene.run("MEMORY", "USAGE", "push:{shared}:invalid-tokens:changes", "SAMPLES", "0").number ?? 0
        return (try usedMemory(scene) - before - stream) / count
    }

    private static func usedMemory(_ scene: OperatorScene) throws -> Int {
        let info = try scene.run("INFO", "memory").text ?? ""
        return try #require(info.firstMatch(of: /used_memory:(\d+)/).flatMap { Int($0.1) })
    }

    @Test("200,000 tokens are divided again while others change them, and take a bounded memory")
    func manyTokens() async throws {
        try await OperatorScene.with { scene in
            let (count, part) = (200_000, 20_000)
            try await Self.reshard(scene, to: 16)
            let before = try Self.usedMemory(scene)
            for first in stride(from: 0, to: count, by: part) {
                try scene.run("EVAL", Self.fill, "0", "\(first)", "\(first + part - 1)", "16")
            }
            #expect(try await scene.tokens.count() == count)
            // 12,500 tokens in a shard: each small hash of details has three.
            #expect(try Self.bytesPerToken(scene, since: before, count) <= 200)
            let numbers = stride(from: 0, to: count, by: 100)
            let known = try numbers.map { try #require(scene.run("EVAL", "return redis.sha1hex(\($0))", "0").text) }
                .map { $0 + String(repeating: "0", count: 24) }
            let asked = known + Self.tokens(2000, seed: 9)
            let (isDone, fleet) = (Counter(), scene.fleet)
            try await withThrowingTaskGroup(of: Int.self) { group in
                group.addTask { try await Self.use(fleet, seed: 1, until: { isDone.value > 0 }) }
                try await Self.reshard(scene, to: 4)
                isDone.set(1)
                for try await calls in group { #expect(calls > 10) }
            }
            let found = try await scene.tokens.find(Self.list(asked))
            #expect(found.map(\.token.text) == known)
            #expect(found.map(\.details.at) == numbers.map { 1_700_000_000_000 + Int64($0) })
            #expect(try await (count...count + 40).contains(scene.tokens.count()))
            // The former form is freed in the background.
            try await eventually("the tokens take at most 170 bytes each") {
                try Self.bytesPerToken(scene, since: before, count) <= 170
            }
        }
    }

    /// Uses tokens of its own as a process does, and checks each call with another process.
    private static func use(
        _ fleet: Fleet, seed: UInt64, until isDone: @Sendable () -> Bool
    ) async throws -> Int {
        var random = SeededGenerator(seed: seed)
        let (one, other) = (
            try await InvalidTokenClient.reading(fleet), try await InvalidTokenClient.reading(fleet)
        )
        let tokens = tokens(40, seed: seed + 100)
        // Registrations are forgotten after a year.
        var (present, at, calls): (Set<String>, Int64, Int) = ([], Int64(Date().timeIntervalSince1970 * 1000), 0)
        while !isDone() {
            let some = Set(
                (0..<Int.random(in: 1...5, using: &random)).compactMap { _ in tokens.randomElement(using: &random) })
            at += 1
            switch Int.random(in: 0..<3, using: &random) {
            case 0:
                _ = try await one.withdraw(some.map { ByteBuffer(string: $0) })
                present.subtract(some)
            case 1:
                try await one.call { [at] set, completion in
                    set.register(some.map { .init(token: ByteBuffer(string: $0), at: at) }, completion: completion)
                }
                present.subtract(some)
                // A report that is older than the registration.
                #expect(try await one.mark(some.map { invalid($0, at: at - 1) }).allSatisfy { $0 == .registeredSince })
            default:
                _ = try await one.mark(some.map { invalid($0, at: at) })
                present.formUnion(some)
            }
            calls += 1
            for process in [other, one] {
                let found = Set(try await process.find(list(tokens)).map(\.token.text))
                #expect(
                    found == present, "too many: \(found.subtracting(present)), lost: \(present.subtracting(found))")
                if found != present { return calls }
            }
        }
        return calls
    }
}

/// A number that several tasks use.
private final class Counter: Sendable {
    private let number = Mutex(0)
    var value: Int { number.withLock { $0 } }
    func set(_ value: Int) { number.withLock { $0 = value } }
}
