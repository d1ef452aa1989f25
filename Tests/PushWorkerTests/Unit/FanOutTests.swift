import APNS
import NIOCore
import PushJob
import PushQueue
import Testing

@testable import PushWorker
@testable import Redis

/// Jobs with many tokens whose notifications end differently, and at different times.
@Suite("Jobs with many tokens")
struct FanOutTests {
    private let scene: EngineScene

    init() throws { scene = try EngineScene() }

    private static let tokens = ["aa", "bb", "cc", "dd"]

    private static func wrapped(_ body: String) -> (tokens: [String], attempt: Int, reason: String?) {
        let job = ByteBuffer(string: body)
        let envelope = Envelope.read(job)
        return (
            envelope.tokens(in: job).map { String(buffer: $0) }, envelope.attempt, envelope.failure(in: job)?.reason
        )
    }

    // MARK: Postponed notifications

    @Test("Each postponed notification has its own delay, attempts and counters")
    func groups() throws {
        scene.push(EngineScene.fanOut(Self.tokens, #""alert":"hi","expiration":"1h""#))
        scene.answer(EngineScene.delivered)
        scene.answer(.tooManyRequests, retryAfter: 120)
        scene.answer(.serviceUnavailable)
        scene.finish(.uncertain(.timedOut))
        let groups = scene.queue.postponed.map { (Self.wrapped($0.body), Int($0.due.dropFirst()) ?? 0) }
        #expect(groups.map(\.0.tokens) == [["bb"], ["cc"], ["dd"]])
        #expect(groups.map(\.0.attempt) == [1, 1, 1], "a first failure spends none")
        #expect(groups.map(\.0.reason) == ["TooManyRequests", "ServiceUnavailable", "NoAnswer"])
        #expect(groups[0].1 >= 120_000 && groups[1].1 < 10_000 && groups[2].1 < 10_000)
        for reason in ["TooManyRequests", "ServiceUnavailable", "NoAnswer"] {
            #expect(scene.queue.stats["retried:\(reason)"] == 1, "\(scene.queue.stats)")
        }
        #expect(scene.stats == ["delivered": 1, "retried": 3, "possible_duplicates": 1])
        #expect(scene.queue.held.isEmpty)
    }

    @Test("Notifications that fail alike return in one job")
    func alike() throws {
        scene.push(EngineScene.fanOut(Self.tokens))
        for _ in Self.tokens { scene.answer(.serviceUnavailable) }
        scene.run()
        #expect(scene.queue.postponed.map { Self.wrapped($0.body).tokens } == [Self.tokens])
        #expect(scene.stats == ["retried": 4] && scene.queue.stats["retried:ServiceUnavailable"] == 4)
    }

    @Test("The counter of mixed jobs counts only those whose notifications ended differently")
    func mixed() throws {
        scene.push(EngineScene.fanOut(Self.tokens))
        for _ in Self.tokens { scene.answer(EngineScene.delivered) }
        scene.run()
        #expect(scene.stats == ["delivered": 4])
        scene.push(EngineScene.fanOut(Self.tokens))
        scene.answer(.badCollapseID)
        for _ in 1..<4 { scene.answer(EngineScene.delivered) }
        scene.run()
        #expect(scene.stats == ["delivered": 7, "dead": 1, "mixed": 1])
        #expect(scene.queue.held.isEmpty)
    }

    // MARK: Parts

    @Test("The answers of a job are written after a second, although one notification has no answer yet")
    func parts() throws {
        let scene = try EngineScene { $0.queues[0].limits.results = .all }
        scene.push(EngineScene.fanOut(Self.tokens))
        let claim = try #require(scene.queue.held.keys.first)
        scene.answer(EngineScene.delivered)
        scene.answer(.unregistered)
        scene.answer(.serviceUnavailable)
        #expect(scene.stats.isEmpty)
        scene.run(.milliseconds(1200))
        #expect(scene.stats == ["delivered": 1, "invalid_token": 1, "retried": 1])
        #expect(scene.fleet.invalid.count == 1)
        #expect(scene.queue.postponed.map { Self.wrapped($0.body).tokens } == [["cc"]])
        // Another worker would send only the rest.
        #expect(scene.queue.held.count == 1)
        let (rest, body) = try #require(scene.queue.held.first)
        #expect(rest != claim && rest.number == claim.number && Self.wrapped(body).tokens == ["dd"])
        #expect(body.hasSuffix(EngineScene.fanOut(Self.tokens) + "}"))
        scene.finish()
        #expect(scene.stats == ["delivered": 2, "invalid_token": 1, "retried": 1, "mixed": 1])
        #expect(scene.queue.held.isEmpty && scene.context.jobs.count == 0)
    }

    @Test("A job that ends within a second is written once")
    func quick() throws {
        scene.push(EngineScene.fanOut(Self.tokens))
        let claims = Set(scene.queue.held.keys)
        for _ in 1..<4 { scene.answer(EngineScene.delivered) }
        scene.run(.milliseconds(500))
        #expect(scene.stats.isEmpty && Set(scene.queue.held.keys) == claims)
        scene.answer(EngineScene.delivered)
        scene.run(.seconds(2))
        #expect(scene.stats == ["delivered": 4])
        #expect(scene.queue.postponed.isEmpty && scene.queue.held.isEmpty)
    }

    @Test("A job without an id keeps its identity from part to part, so each device gets the same apns-id again")
    func identity() throws {
        let job = #"{"tokens":["aa","bb","cc"],"alert":"x"}"#
        scene.push(job)
        let ids = scene.transport.sent.map(\.apnsID)
        for _ in 0..<2 {
            scene.answer(.serviceUnavailable)
            scene.run(.milliseconds(1200))
        }
        let (_, rest) = try #require(scene.queue.held.first)
        scene.answer(.serviceUnavailable)
        scene.run(.seconds(3))
        #expect(scene.queue.postponed.count == 3 && scene.queue.held.isEmpty)
        // The lane claims the rest that a crash would have left, and the postponed parts.
        scene.push(rest)
        for postponed in scene.queue.postponed { scene.push(postponed.body) }
        #expect(scene.transport.sent.dropFirst(3).map(\.apnsID) == [ids[2], ids[0], ids[1], ids[2]])
    }

    @Test("Parts of a job are written in their order, although the first waits for its invalid tokens")
    func order() throws {
        scene.push(EngineScene.fanOut(Self.tokens))
        scene.fleet.refusesInvalidTokens = true
        scene.answer(.unregistered)
        scene.run(.milliseconds(1200))
        scene.answer(EngineScene.delivered)
        scene.run(.milliseconds(1200))
        for _ in 0..<2 { scene.answer(EngineScene.delivered) }
        scene.run(.seconds(3))
        #expect(
            scene.stats.isEmpty && scene.context.jobs.count == 0, "nothing is settled before the token is in the set")
        scene.fleet.refusesInvalidTokens = false
        scene.run(.seconds(3))
        #expect(scene.stats == ["delivered": 3, "invalid_token": 1, "mixed": 1] && scene.queue.held.isEmpty)
        #expect(scene.counters.lostClaims == 0)
    }

    @Test("A part is written only once Redis has confirmed the part before, which it may have refused")
    func refusedPart() throws {
        scene.push(EngineScene.fanOut(["aa", "bb", "cc"]))
        scene.answer(EngineScene.delivered)
        scene.queue.refusal = .redis(.server(RedisServerError(text: "BUSY Redis is busy running a script")))
        scene.run(.milliseconds(1100))
        scene.queue.refusal = nil
        scene.answer(EngineScene.delivered)
        scene.answer(EngineScene.delivered)
        scene.run(.seconds(10))
        #expect(scene.queue.held.isEmpty && scene.stats == ["delivered": 3], "\(scene.stats) \(scene.queue.held)")
        #expect(scene.counters.lostClaims == 0)
    }

    /// Returns a token of 800 hex digits. With these, the results of a job with a thousand tokens are much larger than a batch.
    private static func longToken(_ number: Int) -> String {
        let text = String(0x1000_0000 + number, radix: 16)
        return text + String(repeating: "0", count: 792)
    }

    /// The maximum size of the results in a settlement: a nearly full batch, a part of a job, and the answers of a millisecond.
    private static let maximumResults = 3 * Ledger.resultBytes

    @Test("Large results are written in portions, so that Redis is not busy for long")
    func portions() throws {
        let scene = try EngineScene { $0.queues[0].limits.results = .all }
        scene.transport.streams = 5000
        scene.push(
            EngineScene.fanOut((0..<1000).map(Self.longToken)),
            EngineScene.fanOut((1000..<2000).map(Self.longToken)))
        #expect(scene.transport.submitted.count == 2000)
        while !scene.transport.submitted.isEmpty {
            for _ in 0..<min(100, scene.transport.submitted.count) { scene.transport.answer(EngineScene.delivered) }
            scene.run(.milliseconds(1))
        }
        scene.run()
        #expect(scene.stats["delivered"] == 2000 && scene.queue.held.isEmpty)
        let sizes = scene.queue.resultSizes
        #expect(scene.queue.resultCount == 2000)
        #expect(sizes.reduce(0, +) > 2 * Self.maximumResults, "\(sizes)")
        #expect(sizes.allSatisfy { $0 <= Self.maximumResults }, "\(sizes)")
    }

    @Test("Parts that waited for earlier ones are written in portions, too")
    func waitingPortions() throws {
        let scene = try EngineScene { $0.queues[0].limits.results = .all }
        scene.transport.streams = 5000
        for job in 0..<12 {
            scene.push(EngineScene.fanOut((0..<300).map { Self.longToken(job * 1000 + $0) }))
        }
        #expect(scene.transport.submitted.count == 3600)
        scene.queue.refusal = .redis(.server(RedisServerError(text: "BUSY Redis is busy running a script")))
        for _ in 0..<18 {
            for _ in 0..<200 { scene.transport.answer(EngineScene.delivered) }
            scene.run(.milliseconds(100))
        }
        scene.queue.refusal = nil
        scene.run(.seconds(10))
        #expect(scene.stats["delivered"] == 3600 && scene.queue.held.isEmpty)
        let sizes = scene.queue.resultSizes
        #expect(scene.queue.resultCount == 3600)
        #expect(sizes.reduce(0, +) > 3 * Self.maximumResults, "\(sizes)")
        #expect(sizes.allSatisfy { $0 <= Self.maximumResults }, "\(sizes)")
    }

    @Test("The server of one queue keeps no answers of other queues' jobs.")
    func otherServer() throws {
        let other = QueueConfiguration(keys: try QueueKeys(queue: "other"))
        let scene = try EngineScene { $0.queues.append(other) }
        scene.push(EngineScene.fanOut(["aa", "bb"]))
        scene.stores.queues[1].jobs = [EngineScene.fanOut(["cc", "dd"])]
        scene.lane.wake(QueueID(index: 1))
        scene.run(.milliseconds(20))
        #expect(scene.transport.submitted.count == 4)
        scene.queue.isReady = false
        scene.transport.answer(EngineScene.delivered, at: 0)
        scene.transport.answer(EngineScene.delivered, at: 1)
        scene.run(.milliseconds(1100))
        #expect(scene.stores.queues[1].stats == ["delivered": 1])
        scene.queue.isReady = true
        scene.run(.milliseconds(200))
        #expect(scene.queue.stats == ["delivered": 1])
    }

    @Test("A lane that lost its lease writes no more parts")
    func lostLease() throws {
        scene.push(EngineScene.fanOut(Self.tokens))
        scene.queue.leaseIsLost = true
        scene.pushOne(token: "ee")
        scene.run(.seconds(12))
        let before = scene.stats
        scene.answer(EngineScene.delivered)
        scene.run(.seconds(3))
        #expect(scene.stats == before)
    }
}
