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

@Suite("Dividing the set of invalid tokens", .scene)
struct ReshardTests {
    private var scene: OperatorScene { SceneScope.scene }

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

    /// Returns the key that has a token, as docs/invalid-tokens.md describes it for other programs.
    private static func key(of token: String, _ shards: Int) throws -> String {
        guard shards > 1 else { return "push:{shared}:invalid-tokens" }
        let bits = try #require(Int(token.prefix(4).padding(toLength: 4, withPad: "0", startingAt: 0), radix: 16))
        let digit = token.dropFirst(4).first.map { String($0) } ?? "0"
        return "push:{shared.\(shards).\((bits * shards) >> 16)}:invalid-tokens:\(digit)"
    }

    /// Changes the number of shards where no other process uses the set.
    private static func reshard(_ scene: OperatorScene, to shards: Int, _ control: ChangeControl = ChangeControl())
        async throws
    {
        _ = try await scene.desk().perform(ReshardInvalidTokens(to: shards, pause: .zero), control)
        // Reads the division again: without the pause, this process may rely on an earlier reading.
        _ = try await scene.tokens.division()
    }

    /// Begins a change, which ends after a number of tokens.
    private static func begin(_ scene: OperatorScene, to shards: Int, stoppingAfter limit: Int) async throws {
        var control = ChangeControl()
        let copied = Counter()
        control.progress = { copied.set($0) }
        control.isStopped = { copied.value >= limit }
        try await reshard(scene, to: shards, control)
        #expect(try await scene.tokens.division().incomplete != nil)
    }

    /// Returns the set's contents in the form with a number of shards: tokens with their details as they are stored, and registrations.
    private static func contents(_ scene: OperatorScene, _ shards: Int) async throws -> [String: String] {
        var contents: [String: String] = [:]
        for index in 0..<shards {
            let shard = scene.fleet.sharedKeys.shard(index, of: shards)
            for key in shard.registrationHashes {
                let pairs = try scene.texts("HGETALL", key)
                for at in stride(from: 0, to: pairs.count, by: 2) {
                    contents["registered \(pairs[at])"] = pairs[at + 1]
                }
            }
            let members = list(try shard.sets.flatMap { try scene.texts("SMEMBERS", $0) })
            for stored in try await scene.tokens.call({ $0.form(changing: shards).find(members, completion: $1) }) {
                let marks = stored.marks.map { "\($0.at) \($0.day) \($0.facts.text)" }
                contents[stored.token.text] = "\(stored.sets.rawValue) \(marks)"
            }
        }
        return contents
    }

    /// The keys of the set of invalid tokens, without the division and the stream of changes.
    private static func keys(_ scene: OperatorScene) throws -> [String] {
        try scene.texts("KEYS", "*").filter {
            ($0.contains(":invalid-tokens") || $0.contains(":registrations")) && !$0.hasSuffix(":division")
                && !$0.hasSuffix(":changes")
        }
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
        "all functions act on the union of the shards, and other programs find each token", arguments: [1, 2, 512])
    func union(shards: Int) async throws {
        try await Self.reshard(scene, to: shards)
        // Tokens may be short, and are then not divided evenly among the shards.
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
        // 300 tokens are in some 220 of 512 shards.
        #expect(slots.count * 10 > min(shards, 220) * 9, "\(slots)")
        let asked = ["01"] + tokens.prefix(20) + ["02"] + tokens.suffix(4)
        let found = try await scene.tokens.find(Self.list(asked))
        #expect(found.map(\.token.text) == asked.filter { $0 != "01" && $0 != "02" })
        #expect(found.map(\.place) == Array(1...20) + Array(22...25))
        #expect(found.allSatisfy { $0.details.map(\.at) == [7] && $0.details[0].reason?.text == "Unregistered" })
        #expect(try await Set(Self.all(scene).keys) == Set(tokens))
        for token in tokens.prefix(5) {
            var matches = try #require(TokenMatches(String(token.prefix(8))))
            try await matches.search(scene.tokens, for: nil)
            #expect(matches.tokens == [token] && !matches.isPartial)
        }
        #expect(try await scene.tokens.withdraw(["ab", "01"].map { ByteBuffer(string: $0) }) == 1)
        #expect(try await scene.tokens.count() == tokens.count - 1)
        _ = try await scene.tokens.remove([.init(ByteBuffer(string: "0000"), .registered, registeredAt: 9)])
        #expect(try await DeviceRecord.read("0000", scene.fleet).registeredAt == 9)
        #expect(try await scene.tokens.mark([Self.invalid("0000", at: 8)]) == [.registeredSince])
        let record = try await DeviceRecord.read("abcdef", scene.fleet)
        #expect(record.marks.map(\.details.at) == [7] && record.registeredAt == nil)
        var unread = UnreadParts()
        let sizes = try await KeySizes.read(scene.fleet, [], &unread)
        #expect(sizes.contains { $0.type == "set" && ($0.entries > 0 || shards > 64) }, "\(sizes)")
        #expect(sizes.allSatisfy { $0.bytes >= 0 })
    }

    @Test("each token is copied with its details and its day, registrations too, and the former form is deleted")
    func copies() async throws {
        let tokens = Self.tokens(2500, seed: 2)
        _ = try await scene.tokens.mark(tokens.enumerated().map { Self.invalid($1, at: Int64($0) + 1) })
        let stored = StoredInvalidTokens(scene.connection)
        try stored.add(tokens[0], .init(at: 9, day: 12_345, reason: "Old"))
        // A token that another program has added, without details.
        try scene.run("SADD", "push:{shared}:invalid-tokens", "abcd")
        let registered = Self.tokens(1200, seed: 3)
        for (index, token) in registered.enumerated() {
            try scene.run("HSET", "push:{shared}:registrations", token, "\(1000 + index)")
        }
        // A registration that another program has added for an invalid token.
        try scene.run("HSET", "push:{shared}:registrations", tokens[1], "5000")
        let before = try await Self.contents(scene, 1)
        #expect(before.count == 2501 + 1201 && before[tokens[0]]?.contains("\"9 12345 ") == true)
        for shards in [16, 4, 1] {
            try await Self.reshard(scene, to: shards)
            #expect(try await Self.contents(scene, shards) == before, "\(shards)")
            #expect(try await Set(Self.all(scene).keys) == Set(tokens + ["abcd"]))
            let record = try await DeviceRecord.read(registered[7], scene.fleet)
            #expect(record.registeredAt == 1007)
            // A report that is older than the registration of its device.
            #expect(try await scene.tokens.mark([Self.invalid(registered[7], at: 1006)]) == [.registeredSince])
            let form = shards == 1 ? "{shared}" : "{shared.\(shards)."
            let others = try Self.keys(scene).filter { !$0.contains(form) }
            #expect(others.isEmpty, "\(others.prefix(3))")
            #expect(try await scene.audit().first == "reshard_invalid_tokens done 2501")
        }
        try await Self.reshard(scene, to: 1)
        #expect(try await scene.audit().count == 3, "nothing to do is not recorded")
        for shards in [0, -1, 3, 8192] {
            #expect(throws: FieldMistake.self) { try ReshardInvalidTokens(to: shards) }
        }
    }

    @Test("a worker with a lease in any queue is named, and nothing changes")
    func workers() async throws {
        _ = try await scene.tokens.mark([Self.invalid("abcd")])
        let keys = try QueueKeys(queue: "news")
        let lane = TestWorker(
            "host.7.lane", client: try await scene.fleet.client(for: keys.jobs), keys: keys, limits: QueueLimits())
        try scene.push(OperatorScene.job("a"), to: "push:{news}:jobs")
        #expect(try await lane.claim(1).bodies.count == 1)
        let plan = ChangePlan("one set to 4 shards")
        await expectRefusal("host.7.lane (queues news") { try await Self.reshard(scene, to: 4) }
        // The worker started after the count.
        await expectRefusal("`apns-worker stop --all`") {
            _ = try await scene.desk().apply(ReshardInvalidTokens(to: 4), plan)
        }
        #expect(try scene.run("EXISTS", "push:{shared}:invalid-tokens:division") == 0)
        #expect(try await scene.tokens.count() == 1)
        // The worker's process has ended.
        try scene.run("ZADD", "push:{news}:workers", "XX", "1", "host.7.lane")
        try await Self.reshard(scene, to: 4)
        #expect(try await Self.contents(scene, 4).count == 1)
    }

    @Test("a queue that can't be read may have workers")
    func unreadableQueue() async throws {
        try scene.run("SET", "push:{news}:workers", "x")
        await expectRefusal("a queue that cannot be read may have workers: ") {
            try await Self.reshard(scene, to: 4)
        }
        try scene.run("DEL", "push:{news}:workers")
        try await Self.reshard(scene, to: 4)
    }

    @Test("an operator's process that dies after any command loses nothing, and the change can be completed or undone")
    func deaths() async throws {
        let (tokens, registered) = (Self.tokens(40, seed: 4), Self.tokens(20, seed: 5))
        _ = try await scene.tokens.mark(tokens.map { Self.invalid($0) })
        for token in registered { try scene.run("HSET", "push:{shared}:registrations", token, "77") }
        let before = try await Self.contents(scene, 1)
        #expect(before.count == 60)
        let client = try await scene.fleet.client(for: scene.fleet.sharedKeys.invalidTokens)
        var (shards, deaths, undone, last) = (1, 0, 0, 0)
        var survived: Set<Int> = []
        while survived.count < 2 {
            let target = shards == 1 ? 4 : 1
            var desk = try scene.desk()
            desk.invalidTokens = InvalidTokenClient(
                scene.fleet.clients, client,
                InvalidTokenSet(client: MortalSender(client, commands: last), keys: scene.fleet.sharedKeys))
            last += 7
            var next = target
            do {
                _ = try await desk.perform(ReshardInvalidTokens(to: target, pause: .zero))
                survived.insert(target)
            } catch let failure as QueueFailure {
                #expect("\(failure)".contains("it is dead"))
                deaths += 1
                if deaths.isMultiple(of: 3) { next = shards }
            }
            let division = try await scene.tokens.division()
            #expect(
                try await Self.contents(scene, division.shards) == before, "after \(last) commands: \(division)")
            if division.incomplete != nil, next == shards { undone += 1 }
            try await Self.reshard(scene, to: next)
            #expect(try await scene.tokens.division() == TokenDivision(shards: next))
            #expect(try await Self.contents(scene, next) == before, "repeated after \(last) commands")
            #expect(try Self.keys(scene).allSatisfy { $0.contains(next == 1 ? "{shared}" : "{shared.4.") })
            shards = next
        }
        #expect(deaths > 30 && undone > 5, "\(deaths) \(undone)")
    }

    @Test("an interrupted change keeps others from the set, and status names it until it is completed or undone")
    func interrupted() async throws {
        let tokens = Self.tokens(3000, seed: 6)
        _ = try await scene.tokens.mark(tokens.map { Self.invalid($0) })
        for target in [16, 1] {
            try await Self.begin(scene, to: 16, stoppingAfter: 1)
            let other = try await InvalidTokenClient.reading(scene.fleet)
            let failure = await #expect(throws: QueueFailure.self) {
                try await other.withdraw([ByteBuffer(string: tokens[0])])
            }
            #expect(
                failure.map { "\($0)".contains("`apns-worker invalid reshard --to 1` or `--to 16`") && $0.mayPass }
                    == true)
            await #expect(throws: QueueFailure.self) { try await other.find(Self.list(tokens)) }
            await #expect(throws: QueueFailure.self) { try await other.scan(after: nil, withDetails: true) }
            await #expect(throws: QueueFailure.self) { try await DeviceRecord.read(tokens[0], scene.fleet) }
            let status = try await StatusReader(scene.fleet).read([])
            let problem = try #require(status.problems.first { $0.kind.name == "invalid_tokens_resharding" })
            #expect(status.invalidTokens == 3000 && problem.isCritical)
            #expect(problem.remedies == [.reshard(to: 1), .reshard(to: 16)])
            let plan = try await scene.desk().plan(ReshardInvalidTokens(to: target))
            #expect(plan.count == (target == 1 ? 0 : 3000) && plan.question != nil)
            try await Self.reshard(scene, to: target)
            #expect(try await other.find(Self.list(tokens)).count == 3000)
            #expect(
                try await !StatusReader(scene.fleet).read([]).problems.contains {
                    $0.kind.name == "invalid_tokens_resharding"
                })
            try await Self.reshard(scene, to: 1)
        }
        // A change to a third number.
        try await Self.begin(scene, to: 16, stoppingAfter: 1)
        try await Self.reshard(scene, to: 2)
        #expect(try await Self.contents(scene, 2).count == 3000)
        #expect(try Self.keys(scene).allSatisfy { $0.contains("{shared.2.") })
    }

    @Test("a token that an interrupted attempt copied, or that another program left in the next form, is not in it")
    func leftover() async throws {
        let tokens = Self.tokens(20, seed: 7)
        _ = try await scene.tokens.mark(tokens.map { Self.invalid($0) })
        let stray = Self.tokens(1, seed: 8)[0]
        try scene.run("SADD", Self.key(of: stray, 4), stray)
        try await Self.begin(scene, to: 16, stoppingAfter: 0)
        try scene.run("SADD", Self.key(of: stray, 16), stray)
        for shards in [16, 4] {
            try await Self.reshard(scene, to: shards)
            #expect(try await Set(Self.all(scene).keys) == Set(tokens))
        }
    }

    @Test("a second attempt ends the first one, which changes nothing more")
    func overtaken() async throws {
        let tokens = Self.tokens(3000, seed: 9)
        _ = try await scene.tokens.mark(tokens.map { Self.invalid($0) })
        var control = ChangeControl()
        let (pages, redis) = (Counter(), scene.redis)
        control.progress = { _ in
            pages.set(pages.value + 1)
            // The second attempt has begun.
            do {
                try redis.run("SET", "push:{shared}:invalid-tokens:division", "1 16 1795279247000")
            } catch { Issue.record("\(error)") }
        }
        await expectRefusal("another process changes the number of shards") {
            try await Self.reshard(scene, to: 16, control)
        }
        #expect(pages.value == 1)
        #expect(try scene.run("GET", "push:{shared}:invalid-tokens:division").text == "1 16 1795279247000")
        try await Self.reshard(scene, to: 16)
        #expect(try await Self.contents(scene, 16).count == 3000)
    }

    @Test("a set that another program changes during the copy is not replaced by it")
    func differences() async throws {
        let tokens = Self.tokens(20, seed: 10)
        _ = try await scene.tokens.mark(tokens.map { Self.invalid($0) })
        let (set, registrations) = ("push:{shared}:invalid-tokens", "push:{shared}:registrations")
        let late = Self.tokens(1, seed: 11)[0]
        for (command, words) in [
            (["SADD", set, late], "has 20 of 21 tokens"), (["SREM", set, late], "has 21 of 20 tokens"),
            (["HSET", registrations, late, "5"], "has 0 of 1 registrations"),
        ] {
            var control = ChangeControl()
            let redis = scene.redis
            control.progress = { _ in
                do {
                    try redis.run(command[0], command[1], command[2], command.count > 3 ? command[3] : command[2])
                } catch { Issue.record("\(error)") }
            }
            await expectRefusal(words) { try await Self.reshard(scene, to: 4, control) }
            #expect(try await scene.tokens.division().shards == 1)
        }
        try scene.run("SADD", set, "ab,cd")
        await expectRefusal("has 20 of 21 tokens") { try await Self.reshard(scene, to: 4) }
        try scene.run("SREM", set, "ab,cd")
        try await Self.reshard(scene, to: 4)
        #expect(try await Self.contents(scene, 4).count == 21)
        #expect(
            try await scene.audit().prefix(2) == [
                "reshard_invalid_tokens done 20", "reshard_invalid_tokens refused",
            ])
    }

    /// Four tasks add, remove and register tokens while the number of shards changes three times. The effect of each call that has returned
    /// must be seen by each process. A call that fails can be repeated.
    @Test("processes that started before a change lose no token and keep none")
    func model() async throws {
        let others = Self.tokens(1500, seed: 12)
        _ = try await scene.tokens.mark(others.map { Self.invalid($0) })
        let (isDone, fleet) = (Counter(), scene.fleet)
        try await withThrowingTaskGroup(of: Int.self) { group in
            for worker in 0..<4 {
                group.addTask {
                    try await Self.use(fleet, seed: UInt64(worker), until: { isDone.value > 0 })
                }
            }
            // The pause is that of the command.
            for target in [8, 2, 1] { _ = try await scene.desk().perform(ReshardInvalidTokens(to: target)) }
            isDone.set(1)
            var calls = 0
            for try await count in group { calls += count }
            #expect(calls > 100)
        }
        #expect(try await Set(Self.all(scene).keys).isSuperset(of: others))
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
        return (try scene.connection.usedMemory() - before - stream) / count
    }

    @Test("100,000 tokens are copied, and take a bounded memory")
    func manyTokens() async throws {
        let (count, part) = (100_000, 20_000)
        try await Self.reshard(scene, to: 8)
        let before = try scene.connection.usedMemory()
        for first in stride(from: 0, to: count, by: part) {
            try scene.run("EVAL", Self.fill, "0", "\(first)", "\(first + part - 1)", "8")
        }
        #expect(try await scene.tokens.count() == count)
        // 12,500 tokens in a shard: each small hash of details has three.
        #expect(try Self.bytesPerToken(scene, since: before, count) <= 200)
        let numbers = stride(from: 0, to: count, by: 100)
        let known = try numbers.map { try #require(scene.run("EVAL", "return redis.sha1hex(\($0))", "0").text) }
            .map { $0 + String(repeating: "0", count: 24) }
        let asked = known + Self.tokens(2000, seed: 9)
        try await Self.reshard(scene, to: 2)
        let found = try await scene.tokens.find(Self.list(asked))
        #expect(found.map(\.token.text) == known)
        #expect(found.map { $0.details.first?.at } == numbers.map { 1_700_000_000_000 + Int64($0) })
        #expect(try await scene.tokens.count() == count)
        // The former form is freed in the background.
        try await eventually("the tokens take at most 170 bytes each") {
            try Self.bytesPerToken(scene, since: before, count) <= 170
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
        var (present, at, calls): (Set<String>, Int64, Int) = ([], Moment.now, 0)
        while !isDone() {
            let some = Set(
                (0..<Int.random(in: 1...5, using: &random)).compactMap { _ in tokens.randomElement(using: &random) })
            at += 1
            let now = at
            switch Int.random(in: 0..<3, using: &random) {
            case 0:
                _ = try await afterChange { try await one.withdraw(some.map { ByteBuffer(string: $0) }) }
                present.subtract(some)
            case 1:
                _ = try await afterChange {
                    try await one.remove(
                        some.map { .init(ByteBuffer(string: $0), .registered, registeredAt: now) })
                }
                present.subtract(some)
                // A report that is older than the registration.
                let late = try await afterChange { try await one.mark(some.map { invalid($0, at: now - 1) }) }
                #expect(late.allSatisfy { $0 == .registeredSince })
            default:
                _ = try await afterChange { try await one.mark(some.map { invalid($0, at: now) }) }
                present.formUnion(some)
            }
            calls += 1
            for process in [other, one] {
                let found = Set(try await afterChange { try await process.find(list(tokens)) }.map(\.token.text))
                #expect(
                    found == present, "too many: \(found.subtracting(present)), lost: \(present.subtracting(found))")
                if found != present { return calls }
            }
        }
        return calls
    }

    /// Repeats a call until the number of shards is not changed.
    private static func afterChange<Value>(_ call: () async throws -> Value) async throws -> Value {
        while true {
            do {
                return try await call()
            } catch QueueFailure.resharding {
                try await Task.sleep(for: .milliseconds(5))
            }
        }
    }
}

/// A number that several tasks use.
private final class Counter: Sendable {
    private let number = Mutex(0)
    var value: Int { number.withLock { $0 } }
    func set(_ value: Int) { number.withLock { $0 = value } }
}

/// The commands of a process that dies after some commands.
///
/// `@unchecked Sendable`: it is used only on the event loop.
private final class MortalSender: RedisSender, @unchecked Sendable {
    private let client: RedisClient
    private var left: Int

    init(_ client: RedisClient, commands: Int) { (self.client, left) = (client, commands) }

    var eventLoop: any EventLoop { client.eventLoop }
    var isReady: Bool { client.isReady }

    func send(_ command: RedisCommand, deadline: TimeAmount?, completion: @escaping RedisCommand.Completion) {
        guard left > 0 else { return completion(.failure(.notConnected(address: "here", reason: "it is dead"))) }
        left -= 1
        client.send(command, deadline: deadline, completion: completion)
    }
}
