import Foundation
import NIOCore
import QueueTestSupport
import Redis
import Sockets
import TestSupport
import Testing

@testable import PushQueue

@Suite("The keeper of the filter of invalid tokens", .queue)
struct TokenFilterKeeperTests {
    private let queue = QueueScope.queue

    /// A keeper that runs on the client's event loop, and a lane that looks up tokens.
    private final class Scene: LoopBound {
        private let client: RedisClient
        private let keys: SharedKeys
        private let slot = TokenFilterSlot()
        private let loop: any EventLoop
        private let box: NIOLoopBoundBox<(keeper: TokenFilterKeeper, reader: TokenFilterSlot.Reader)>
        private let runs: RepeatedTask

        init(_ queue: TestQueue, maximumBytes: Int = 1 << 20, minimumAge: TimeAmount = .hours(1)) {
            (client, keys) = (queue.client, queue.sharedKeys)
            let (loop, client, slot) = (queue.client.eventLoop, queue.client, slot)
            self.loop = loop
            let keeper = TokenFilterKeeper(
                set: InvalidTokenSet(client: client, keys: queue.sharedKeys, maximumAge: 0), slot: slot,
                eventLoop: loop, maximumBytes: maximumBytes, minimumAge: minimumAge)
            let box = NIOLoopBoundBox.makeBoxSendingValue(
                (keeper: keeper, reader: TokenFilterSlot.Reader(slot)), eventLoop: loop)
            self.box = box
            runs = loop.scheduleRepeatedTask(initialDelay: .zero, delay: .milliseconds(20)) { _ in
                box.value.keeper.run()
            }
        }

        deinit { runs.cancel() }

        /// Returns true if a token may be invalid, also while the filter is not current.
        func mayFind(_ token: String) async throws -> Bool {
            try await loop.submit { [box, loop] in
                box.value.reader.current(at: loop.now)?.mayContain(ByteBuffer(string: token)) ?? true
            }.get()
        }

        func isCurrent() async throws -> Bool { try await !mayFind("never added") }

        var fillings: Int { get async throws { try await loop.submit { [box] in box.value.keeper.fillings }.get() } }

        func add(_ tokens: [String]) async throws {
            try await client.addInvalidTokens(
                tokens.map {
                    InvalidToken(
                        token: ByteBuffer(string: $0), at: 5, reason: "Unregistered", topic: nil, source: .apns)
                }, keys)
        }

        /// Records a token that APNs throttles for a time.
        func throttle(_ token: String, until: Int64 = .max / 2_000_000) async throws {
            try await call {
                ThrottledTokens(client: $0, keys: $1).add(ByteBuffer(string: token), until: until, completion: $2)
            }
        }

        func withdraw(_ tokens: [String]) async throws {
            _ = try await call { client, keys, completion in
                InvalidTokenSet(client: client, keys: keys, maximumAge: 0)
                    .remove(tokens.map { .init(ByteBuffer(string: $0), .all) }, completion: completion)
            }
        }

        private func call<Value: Sendable>(
            _ body: @escaping @Sendable (RedisClient, SharedKeys, @escaping Completion<Value>) -> Void
        ) async throws -> Value {
            try await loop.call { [client, keys] in body(client, keys, $0) }
        }
    }

    @Test("reads the whole set, then the announcements of other clients")
    func follows() async throws {
        let scene = Scene(queue)
        let first = (0..<5000).map { "aa\($0)" }
        try await scene.add(first)
        try await eventually("it is current") { try await scene.isCurrent() }
        for token in first { #expect(try await scene.mayFind(token)) }
        for number in 0..<40 {
            let token = "bb\(number)"
            try await scene.add([token])
            try await eventually("it is known") { try await scene.mayFind(token) }
        }
        // More tokens than one entry of the stream holds.
        let many = (0..<321).map { "cc\($0)" }
        try await scene.add(many)
        try await eventually("it is known") { try await scene.mayFind("cc320") }
        for token in many { #expect(try await scene.mayFind(token)) }
        try await scene.withdraw(["bb1", "bb2"])
        try await eventually("it is current") { try await scene.isCurrent() }
        #expect(try await scene.fillings == 1)
    }

    @Test("is not current while the number of shards is changed, and reads the shards afterwards")
    func shards() async throws {
        let scene = Scene(queue)
        try await scene.add(["aa"])
        try await eventually("it is current") { try await scene.isCurrent() }
        let (keys, redis) = (queue.sharedKeys, queue.redis)
        try redis.run("SET", keys.invalidTokenDivision, "1 4 1795279247000")
        try await eventually("it is not current") { try await !scene.isCurrent() }
        let shard = keys.shard(TokenDivision.shard(of: ByteBuffer(string: "bb00c"), among: 4), of: 4)
        try redis.run("SADD", "\(shard.tokens):c", "bb00c")
        try redis.run("SET", keys.invalidTokenDivision, "4")
        try await eventually("it is current") { try await scene.isCurrent() }
        #expect(try await scene.mayFind("bb00c"))
        #expect(try await scene.fillings == 2)
        try await scene.add(["cc00d"])
        try await eventually("it is known") { try await scene.mayFind("cc00d") }
        #expect(try redis.run("EXISTS", keys.invalidTokens) == 1, "nothing has deleted the former form")
    }

    @Test("has the tokens that APNs throttles, and stays current while there are some")
    func throttled() async throws {
        let scene = Scene(queue)
        try await scene.throttle("aa")
        try await scene.add(["ab"])
        try await eventually("it is current") { try await scene.isCurrent() }
        #expect(try await scene.mayFind("aa"))
        #expect(try await scene.mayFind("ab"))
        try await scene.throttle("bb")
        try await eventually("it is known") { try await scene.mayFind("bb") }
        // Only a token that was not throttled is announced.
        try await scene.throttle("bb", until: .max / 1_000_000)
        #expect(try queue.redis.run("XLEN", queue.sharedKeys.invalidTokenChanges) == 3)
        try await scene.add(["cc"])
        try await eventually("it is known") { try await scene.mayFind("cc") }
        #expect(try await scene.isCurrent())
        #expect(try await scene.fillings == 1)
    }

    @Test("makes a larger filter when more tokens are throttled than it has room for")
    func manyThrottled() async throws {
        let scene = Scene(queue)
        try await scene.add(["aa"])
        try await eventually("it is current") { try await scene.isCurrent() }
        let far = "\(Int64.max / 2_000_000)"
        // As other workers would have announced them.
        for start in stride(from: 0, to: 6000, by: 500) {
            let tokens = (start..<start + 500).map { "bb\($0)" }
            let command = ["ZADD", queue.sharedKeys.throttledTokens] + tokens.flatMap { [far, $0] }
            try queue.redis.run(command.map { Array($0.utf8) })
            try queue.redis.run(
                "XADD", queue.sharedKeys.invalidTokenChanges, "*", "throttled", tokens.joined(separator: ","))
        }
        try await eventually("it was read again, and is current") {
            guard try await scene.fillings > 1 else { return false }
            return try await scene.isCurrent()
        }
        for number in 0..<6000 { #expect(try await scene.mayFind("bb\(number)")) }
    }

    @Test(
        "reads the set again if it missed something",
        arguments: [
            "added without an announcement", "others are removed at the same time", "the stream is deleted",
            "the stream is cut", "Redis is empty",
        ])
    func missed(_ event: String) async throws {
        let scene = Scene(queue)
        let (set, changes) = (queue.sharedKeys.invalidTokens, queue.sharedKeys.invalidTokenChanges)
        try await scene.add(["aa", "ab"])
        try await eventually("it is current") { try await scene.isCurrent() }
        switch event {
        case "the stream is deleted":
            try await scene.add(["bb"])
            try queue.redis.run("DEL", changes)
            // The next entry of the new stream has another ID.
            try await scene.add(["bc"])
        case "the stream is cut":
            try await scene.add(["bb"])
            try queue.redis.run("XTRIM", changes, "MAXLEN", "0")
            try await scene.add(["bc"])
        case "others are removed at the same time":
            try await scene.withdraw(["aa", "ab"])
            try queue.redis.run("SADD", set, "bb", "bc")
        case "Redis is empty":
            try queue.redis.run("DEL", changes, set)
            try await scene.add(["bb", "bc"])
        default: try queue.redis.run("SADD", set, "bb", "bc")
        }
        try await eventually("the filter is current, and has the tokens") {
            for token in ["bb", "bc"] { guard try await scene.mayFind(token) else { return false } }
            return try await scene.isCurrent()
        }
        #expect(try await scene.fillings > 1)
    }

    @Test("finds tokens that another program adds while it, or an operator, removes as many", arguments: [1, 2])
    func hidden(shards: Int) async throws {
        if shards > 1 { try queue.redis.run("SET", queue.sharedKeys.invalidTokenDivision, "\(shards)") }
        let scene = Scene(queue, minimumAge: .milliseconds(100))
        func key(_ token: String) -> String {
            let shard = queue.sharedKeys.shard(
                TokenDivision.shard(of: ByteBuffer(string: token), among: shards), of: shards)
            return shard.isShard ? "\(shard.tokens):\(token.dropFirst(4).prefix(1))" : shard.tokens
        }
        let (old, new) = (
            (0..<40).map { String(format: "aa%06x", $0) }, (0..<40).map { String(format: "aa%06x", $0 + 999) }
        )
        try await scene.add(old)
        try await eventually("it is current") { try await scene.isCurrent() }
        for (gone, added) in zip(old.prefix(20), new) {
            _ = try queue.redis.run(
                "EVAL", "redis.call('SREM', KEYS[1], ARGV[1]) return redis.call('SADD', KEYS[2], ARGV[2])", "2",
                key(gone), key(added), gone, added)
        }
        try await scene.withdraw(Array(old.suffix(20)))
        for token in new.suffix(20) { try queue.redis.run("SADD", key(token), token) }
        try await eventually("the filter is current, and has all") {
            for token in new { guard try await scene.mayFind(token) else { return false } }
            return try await scene.isCurrent()
        }
    }

    @Test("has tokens that are invalid only in the sandbox, or for another topic")
    func otherSets() async throws {
        let scene = Scene(queue)
        try queue.redis.run("SADD", queue.sharedKeys.invalidTokens + ":sandbox", "aa")
        try queue.redis.run("SADD", queue.sharedKeys.invalidTokens + ":other", "ab")
        try await eventually("it is current") { try await scene.isCurrent() }
        for token in ["aa", "ab"] { #expect(try await scene.mayFind(token)) }
    }

    @Test("makes a larger filter for a set that has outgrown it")
    func growth() async throws {
        let scene = Scene(queue)
        try await scene.add(["aa"])
        try await eventually("it is current") { try await scene.isCurrent() }
        let many = (0..<20_000).map { "bb\($0)" }
        for start in stride(from: 0, to: many.count, by: 1000) {
            try await scene.add(Array(many[start..<start + 1000]))
        }
        // Under load, the set is read again before all tokens are added, and once more after that.
        try await eventually("it is current, and too large to find many others") {
            var others = 0
            for number in 0..<2000 { others += try await scene.mayFind("cc\(number)") ? 1 : 0 }
            return others < 100 ? try await scene.isCurrent() : false
        }
        #expect(try await scene.fillings > 1)
        for token in many { #expect(try await scene.mayFind(token)) }
    }

    @Test("is not current while Redis does not answer, and again later")
    func outage() async throws {
        let scene = Scene(queue)
        try await scene.add(["aa"])
        try await eventually("it is current") { try await scene.isCurrent() }
        try queue.redis.run("CLIENT", "PAUSE", "3000", "ALL")
        try await eventually("it is not current") { try await !scene.isCurrent() }
        try await eventually("it is current") { try await scene.isCurrent() }
    }

    @Test("asks nothing while no lane looks up tokens, and catches up")
    func sleeps() async throws {
        let scene = Scene(queue)
        try await scene.add(["aa"])
        try await eventually("it is current") { try await scene.isCurrent() }
        func reads() throws -> Int { try queue.redis.calls()["xrange"] ?? 0 }
        try await eventually("it stops to read") {
            let before = try reads()
            try await Task.sleep(for: .seconds(1))
            return try reads() == before
        }
        try await scene.add(["bb"])
        try await eventually("it is current") { try await scene.isCurrent() }
        #expect(try await scene.mayFind("bb"))
        #expect(try await scene.fillings == 1)
    }

    @Test("makes no filter for a set that is too large for it")
    func bound() async throws {
        let scene = Scene(queue, maximumBytes: TokenFilter.size(capacity: 4096) - 1)
        try await scene.add(["aa"])
        try await eventually("it has asked") { try queue.redis.calls()["xrevrange"] ?? 0 > 0 }
        #expect(try await !scene.isCurrent())
        #expect(try await scene.fillings == 0)
    }

    @Test("never lacks a token for longer than a second, whatever other programs do")
    func model() async throws {
        let scene = Scene(queue)
        let set = queue.sharedKeys.invalidTokens
        var random = SeededGenerator(seed: 7)
        var added: [(token: String, at: ContinuousClock.Instant)] = []
        // The tokens that were added more than a second ago are the first ones.
        var (known, checks, conclusive) = (0, 0, 0)
        let end = ContinuousClock.now + .seconds(12)
        while ContinuousClock.now < end {
            let number = added.count
            let tokens = (0..<Int.random(in: 1...3, using: &random)).map { "\(number)-\($0)" }
            switch Int.random(in: 0..<20, using: &random) {
            case 0: try queue.redis.run("SADD", set, tokens[0])
            case 1: try queue.redis.run("XTRIM", queue.sharedKeys.invalidTokenChanges, "MAXLEN", "1")
            case 2: try queue.redis.run("SREM", set, added.randomElement(using: &random)?.token ?? "none")
            case 3: try await scene.withdraw([added.randomElement(using: &random)?.token ?? "none"])
            default:
                try await scene.add(tokens)
                added += tokens.map { ($0, .now) }
            }
            let limit = ContinuousClock.now - .seconds(1)
            while known < added.count, added[known].at < limit { known += 1 }
            for _ in 0..<min(5, known) {
                let token = added[Int.random(in: max(0, known - 50)..<known, using: &random)].token
                // Removed tokens are not added again, so they may be missing after another reading.
                guard try queue.redis.run("SISMEMBER", set, token) == 1 else { continue }
                checks += 1
                #expect(try await scene.mayFind(token), "\(token)")
            }
            conclusive += try await scene.isCurrent() ? 1 : 0
        }
        #expect(checks > 100 && conclusive > 0, "\(checks), \(conclusive)")
    }
}
