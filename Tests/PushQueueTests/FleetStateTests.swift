import Foundation
import NIOCore
import Operations
import QueueTestSupport
import Redis
import Sockets
import TestSupport
import Testing

@testable import PushQueue

/// The state that all workers share: paused apps, rates, throttled tokens.
@Suite("State that the fleet shares", .queue)
struct FleetStateTests {
    private let queue = QueueScope.queue

    /// Two workers' views of one server, from a test's task.
    private struct Fleet: LoopBound {
        let loop: any EventLoop
        let pauses: [NIOLoopBoundBox<AppPauses>]
        let rates: NIOLoopBoundBox<SharedRates>
        let throttled: NIOLoopBoundBox<ThrottledTokens>
        let tokens: NIOLoopBoundBox<SharedProviderTokens>

        func call<Value: Sendable, Failure: Error>(
            _ body: @escaping @Sendable (Fleet, @escaping (Result<Value, Failure>) -> Void) -> Void
        ) async throws -> Value {
            try await loop.call { body(self, $0) }
        }

        func read(_ apps: [String] = ["shop"]) async throws -> [AppPauses.State] {
            try await call { $0.pauses[0].value.read(apps, completion: $1) }
        }

        func share(_ token: String, issuedAt: Int64, refusedAt: Int64 = 0) async throws -> SharedProviderTokens.Answer {
            let offer = SharedProviderTokens.Offer(
                keyID: "K", teamID: "T", issuedAt: issuedAt, token: token, refusedAt: refusedAt)
            return try await call { $0.tokens.value.share(offer, completion: $1) }
        }

        func reserve(_ count: Int, perSecond: Int) async throws -> Int64 {
            try await call { $0.rates.value.reserve(count, of: "shop", perSecond: perSecond, completion: $1) }
        }
    }

    private func fleet() async throws -> Fleet {
        let (client, keys) = (queue.client, queue.sharedKeys)
        let loop = client.eventLoop
        return try await loop.submit {
            Fleet(
                loop: loop,
                pauses: (0..<2).map { _ in
                    NIOLoopBoundBox(AppPauses(client: client, keys: keys), eventLoop: loop)
                }, rates: NIOLoopBoundBox(SharedRates(client: client, keys: keys), eventLoop: loop),
                throttled: NIOLoopBoundBox(ThrottledTokens(client: client, keys: keys), eventLoop: loop),
                tokens: NIOLoopBoundBox(SharedProviderTokens(client: client, keys: keys), eventLoop: loop))
        }.get()
    }

    private func now() throws -> Int64 {
        Int64(try #require(queue.redis.run("TIME").elements?.first?.text.flatMap(Int.init)))
    }

    @Test("an operator's pause is read, whatever its contents")
    func ordered() async throws {
        let fleet = try await fleet()
        #expect(try await fleet.read() == [AppPauses.State()])
        let key = queue.sharedKeys.appPaused("shop")
        for text in [
            "maintenance", #"{"v":1,"reason":"maintenance"}"#, #"{"reason":"maintenance","until":"soon"}"#,
            "", "\u{1B}[2J\nx", "[]", "1", #""x""#, "{", String(repeating: "x", count: 100_000),
        ] {
            try queue.redis.run("SET", key, text)
            let pause = try #require(try await fleet.read()[0].pause)
            #expect(pause.reason.utf8.count <= 200 && !pause.reason.contains("\u{1B}"))
        }
        let pause = PauseRecord(reason: "by \"hand\"", since: 5, by: "me")
        try await AppPauses.set(pause, of: "shop", queue.client, queue.sharedKeys)
        #expect(try await fleet.read(["other", "shop"]) == [AppPauses.State(), AppPauses.State(pause: pause)])
        #expect(try await AppPauses.end("shop", queue.client, queue.sharedKeys))
        #expect(try await !AppPauses.end("shop", queue.client, queue.sharedKeys))
    }

    @Test("each lane learns once that an operator resumed an app, also if it was not paused")
    func resumed() async throws {
        let fleet = try await fleet()
        for _ in 0..<2 {
            try await AppPauses.sendProbe(of: "shop", queue.client, queue.sharedKeys)
            for lane in 0..<2 {
                let isResumed: [[AppPauses.State]] = try await [
                    fleet.call { $0.pauses[lane].value.read(["shop"], completion: $1) },
                    fleet.call { $0.pauses[lane].value.read(["shop"], completion: $1) },
                ]
                #expect(isResumed.map { $0[0].isResumed } == [true, false])
            }
        }
        let life = try #require(queue.redis.run("PTTL", queue.sharedKeys.appResumed("shop")).number)
        #expect((1...60_000).contains(life))
    }

    @Test("a key of another type is reported, and not overwritten")
    func wrongType() async throws {
        let fleet = try await fleet()
        for key in [queue.sharedKeys.appPaused("shop"), queue.sharedKeys.appRate("shop")] {
            try queue.redis.run("RPUSH", key, "x")
        }
        // All pauses are read at once, and a key of another type hides no pause.
        #expect(try await fleet.read(["shop", "other"]) == [AppPauses.State(), AppPauses.State()])
        await #expect(throws: QueueFailure.self) { try await fleet.reserve(1, perSecond: 1) }
        #expect(try queue.redis.run("LLEN", queue.sharedKeys.appRate("shop")) == 1)
    }

    @Test("portions of a rate begin where the previous one ends, whichever worker asks")
    func rate() async throws {
        let fleet = try await fleet()
        let key = queue.sharedKeys.appRate("shop")
        var before = 0
        for _ in 0..<20 {
            let asked = try #require(queue.redis.run("TIME").elements?.compactMap { $0.text.flatMap(Int.init) })
            let wait = try await fleet.reserve(100, perSecond: 1000)
            let end = try #require(queue.redis.run("HGET", key, "next_us").text.flatMap(Int.init))
            // In microseconds: a portion is a tenth of a second, and begins at or after the end of the one before.
            #expect(end - before >= 100_000)
            #expect(Int(wait) * 1000 <= max(0, end - 100_000 - asked[0] * 1_000_000 - asked[1]) + 1000)
            before = end
        }
        for fields in [
            ["next_us", "9e15"], ["next_us", "nonsense"], ["next_us", "9e15", "per_second", "x"],
            ["next_us", "nan", "per_second", "inf", "reserved_us", "-inf", "limited_at", "nan"],
        ] {
            try queue.redis.run((["HSET", key] + fields).map { Array($0.utf8) })
            #expect(try await fleet.reserve(100, perSecond: 1000) < 1000, "\(fields)")
        }
    }

    @Test("a slow rate is kept among many workers, and another rate has the notifications before it sent first")
    func slowRate() async throws {
        let fleet = try await fleet()
        var waits: [Int64] = []
        for _ in 0..<200 { waits.append(try await fleet.reserve(1, perSecond: 1)) }
        #expect(zip(0..., waits).allSatisfy { number, wait in (number * 1000 - 60_000...number * 1000) ~= Int(wait) })
        // The wait for 200 notifications, less those whose time has passed since.
        let faster = try await fleet.reserve(100, perSecond: 100)
        #expect((1400...2000).contains(faster))
        let slower = try await fleet.reserve(1, perSecond: 1)
        #expect((240_000...300_000).contains(slower))
    }

    @Test("new jobs of a limited rate are behind those that wait for their turn, and those that have missed it")
    func turns() async throws {
        func ask(_ campaign: String, at time: Int, goFirst: Bool = false, _ number: Int = 1) async throws -> [Int] {
            let clock = queue.sharedKeys.campaignRate("clock")
            try queue.redis.run("SET", clock, "\(1_800_000_000_000 + time)")
            return try await queue.limit(
                campaign, 5, since: 1, Array(repeating: 1, count: number), goFirst: goFirst, clock: .key(clock))
        }
        #expect(try await ask("waiting", at: 0) == [0])
        #expect(try await ask("waiting", at: 50) == [150])
        // The rate would allow one notification, but the job that waits has not asked again.
        #expect(try await ask("waiting", at: 250) == [150])
        #expect(try await ask("waiting", at: 250, goFirst: true) == [0])
        #expect(try await ask("late", at: 0, goFirst: true, 2) == [0, 200])
        #expect(try await ask("late", at: 250) == [150])
        #expect(try await ask("late", at: 250, goFirst: true) == [0])
    }

    @Test("throttled tokens are found with their times")
    func throttled() async throws {
        let fleet = try await fleet()
        let now = try now() * 1000
        func add(_ token: String, _ until: Int64) async throws {
            let token = ByteBuffer(string: token)
            let _: Void = try await fleet.call { $0.throttled.value.add(token, until: until, completion: $1) }
        }
        for (token, until) in [("aa", 50_000), ("bb", 90_000), ("aa", 70_000), ("bb", 60_000)] as [(String, Int64)] {
            try await add(token, now + until)
        }
        func find(_ tokens: [String]) async throws -> [[String]] {
            let pairs: [(token: ByteBuffer, until: Int64)] = try await fleet.call { fleet, completion in
                var list = TokenList()
                for token in tokens { list.append(ByteBuffer(string: token)) }
                list.skip()
                fleet.throttled.value.find(list, completion: completion)
            }
            return pairs.map { [$0.token.text, "\($0.until)"] }
        }
        #expect(try await find(["00", "bb", "cc", "aa"]) == [["bb", "\(now + 90_000)"], ["aa", "\(now + 70_000)"]])
        #expect(try await find([]).isEmpty)
        func count() async throws -> Int { try await fleet.call { $0.throttled.value.count(completion: $1) } }
        #expect(try await count() == 2)
        try queue.redis.run("ZADD", queue.sharedKeys.throttledTokens, "\(now - 1)", "old", "5", "older")
        try await add("cc", now + 20_000)
        #expect(try queue.redis.run("ZCARD", queue.sharedKeys.throttledTokens) == 3)
        // Another client may have written any time.
        try queue.redis.run("ZADD", queue.sharedKeys.throttledTokens, "+inf", "dd", "1e300", "ee")
        try await add("ff", now + 30_000)
        #expect(try queue.redis.run("ZCARD", queue.sharedKeys.throttledTokens) == 6)
        #expect(try queue.redis.run("PTTL", queue.sharedKeys.throttledTokens).number ?? 0 > 30_000)
        try queue.redis.run("DEL", queue.sharedKeys.throttledTokens)
        try queue.redis.run("SET", queue.sharedKeys.throttledTokens, "x")
        await #expect(throws: QueueFailure.self) { try await add("dd", now + 20_000) }
        await #expect(throws: QueueFailure.self) { try await find(["aa"]) }
        await #expect(throws: QueueFailure.self) { try await count() }
    }

    private func other(_ text: String) -> SharedProviderTokens.Answer { .other(ByteBuffer(string: text)) }

    @Test("the first offered provider token is the fleet's, until it is old or APNs has refused it")
    func providerTokens() async throws {
        let fleet = try await fleet()
        let key = queue.sharedKeys.providerToken(team: "T", key: "K")
        #expect(try await fleet.share("one", issuedAt: now()) == .taken)
        #expect(try await fleet.share("two", issuedAt: now()) == other("one"))
        let life = try #require(queue.redis.run("TTL", key).number)
        #expect((3500...3600).contains(life))

        // Just before the age of renewal, and at it.
        let old = try now() - SharedProviderTokens.renewalAge
        try queue.redis.run("SET", key, "\(old + 60) old")
        #expect(try await fleet.share("three", issuedAt: now()) == other("old"))
        try queue.redis.run("SET", key, "\(old) old")
        let renewed = try now()
        #expect(try await fleet.share("three", issuedAt: renewed) == .taken)

        // If two workers were refused the same token, the second finds the token of the first.
        #expect(try await fleet.share("four", issuedAt: now(), refusedAt: renewed) == .taken)
        #expect(try await fleet.share("five", issuedAt: now(), refusedAt: renewed - 1) == other("four"))
    }

    @Test("a worker whose clock is wrong does not share its token, and gets the difference")
    func clocks() async throws {
        let fleet = try await fleet()
        let key = queue.sharedKeys.providerToken(team: "T", key: "K")
        let now = try now()
        for lead: Int64 in [600, -600] {
            guard case .clocksDiffer(let seconds) = try await fleet.share("x", issuedAt: now + lead) else {
                Issue.record("a token that is \(lead) s off was shared")
                return
            }
            #expect(abs(seconds - lead) < 60)
        }
        #expect(try queue.redis.run("EXISTS", key) == 0)
        // A token from the future, which another version may have stored, does not block workers.
        try queue.redis.run("SET", key, "\(now + 10_000) future")
        #expect(try await fleet.share("x", issuedAt: now) == .taken)
    }

    @Test("any other value in place of a provider token is replaced", arguments: ["", "x", "1", "1 a b", "1 a\nb"])
    func garbage(_ text: String) async throws {
        let fleet = try await fleet()
        let key = queue.sharedKeys.providerToken(team: "T", key: "K")
        try queue.redis.run("SET", key, text)
        let now = try now()
        #expect(try await fleet.share("one", issuedAt: now) == .taken)
        #expect(try await fleet.share("two", issuedAt: now) == other("one"))
    }
}
