import APNS
import Foundation
import NIOCore
import PushJob
import PushQueue
import TestSupport
import Testing

@testable import PushWorker

/// The engine's real parts while APNs fails, refuses a connection, or is another server.
@Suite("The engine in an outage")
struct EngineOutageTests {
    private let scene: EngineScene

    init() throws { scene = try EngineScene() }

    // MARK: A failing endpoint

    enum Outage: CaseIterable { case serverErrors, silence }

    @Test("loses and gives up nothing in an hour, and delivers everything afterwards", arguments: Outage.allCases)
    func hour(of outage: Outage) throws {
        let jobs = 400
        let scene = try EngineScene { $0.queues[0].limits.results = .off }
        scene.queue.jobs = (0..<jobs).map { EngineScene.job(String(10_000 + $0) + "0") }
        let begin = scene.loop.now
        scene.pass(.hours(1)) {
            outage == .silence ? nil : .response(Response(status: 503, reason: .serviceUnavailable))
        }
        let requests = scene.transport.sent.count
        // The requests in flight at the beginning, and then one at a time.
        #expect(requests >= 100 && requests < 100 + 40, "\(requests) requests")
        #expect(scene.queue.dead.isEmpty, "\(scene.stats)")
        #expect(scene.queue.postponed.allSatisfy { $0.body.contains(#""attempt":1"#) })
        #expect(scene.counters.possibleDuplicates <= (outage == .silence ? requests : 0))
        let event = outage == .silence ? "no_answers" : "server_errors"
        #expect(scene.log.events.contains(event) && !scene.log.events.contains("answers_again"))
        #expect(scene.loop.now - begin >= .hours(1))

        scene.transport.isUnanswered = false
        scene.pass(.minutes(40)) { EngineScene.delivered }
        #expect(scene.queue.stats["delivered"] == jobs && scene.queue.dead.isEmpty, "\(scene.stats)")
        #expect(Set(scene.transport.tokens).count == jobs)
        #expect(scene.log.events.count { $0 == "answers_again" } == 1)
        #expect(scene.queue.held.isEmpty && scene.lane.intake.inFlight == 0 && scene.context.jobs.count == 0)
    }

    @Test("shows the endpoint's state in health, heartbeat and metrics while it lasts, also between probes")
    func visible() throws {
        scene.fail(EndpointBreaker.limit)
        let sender = scene.lane.senders[0]
        #expect(sender.problem?.contains("server errors from APNs: ServiceUnavailable") == true)
        #expect(sender.report.serverError == "ServiceUnavailable" && !sender.report.isUnanswered)
        #expect(
            scene.lane.observer.report().apps.first?.breaker == .unavailable && !scene.lane.observer.report().isReady)
        #expect(scene.log.events.count { $0 == "server_errors" } == 1)
        scene.pass(.minutes(3)) { nil }
        #expect(sender.report.isUnanswered && sender.report.serverError == nil, "the last probe was not answered")
        scene.pass(.minutes(6)) { EngineScene.delivered }
        #expect(sender.problem == nil && scene.lane.observer.report().apps.first?.breaker == .closed)
        #expect(scene.log.events.count { $0 == "answers_again" } == 1)
    }

    @Test("claims only one job for a probe while the endpoint's breaker is open, and does not delay another app")
    func claimsLess() throws {
        let scene = try EngineScene(apps: ["shop", "news"])
        for number in 0..<EndpointBreaker.limit {
            scene.push(#"{"app":"shop","alert":"x","token":"\#(1000 + number)"}"#)
            scene.answer(.serviceUnavailable)
        }
        let sent = scene.transport.sent.count
        #expect(!scene.lane.senders[0].gate.sendsFreely && scene.lane.senders[0].capacity <= 1)
        for number in 0..<50 {
            scene.queue.jobs.append(#"{"app":"shop","alert":"x","token":"\#(2000 + number)"}"#)
            scene.queue.jobs.append(#"{"app":"news","alert":"x","token":"\#(3000 + number)"}"#)
        }
        scene.lane.wake(QueueID(index: 0))
        scene.run(.seconds(5))
        #expect(scene.transport(1).sent.count == 50 && scene.transport.sent.count == sent + 1, "one is a probe")
        #expect(scene.queue.stats["deferred:EndpointUnavailable"] ?? 0 > 10 && scene.queue.dead.isEmpty)
    }

    @Test("spends attempts on server errors only when a job without expiration is a day old", arguments: [1, 23, 25])
    func budget(hours: Int64) throws {
        let enqueued = EngineScene.time(scene.loop.now) / 1000 - hours * 3600
        let later = EngineScene.time(scene.loop.now) / 1000 + 3600
        scene.pushOne(token: "ab", #""alert":"x","enqueued_at":\#(enqueued)"#)
        scene.answer(.internalServerError)
        scene.pushOne(token: "cd", #""alert":"x","enqueued_at":\#(enqueued),"expiration":\#(later)"#)
        scene.finish(.internalServerError)
        #expect(scene.stats == ["retried": 2])
        let attempts = scene.queue.postponed.map { $0.body.contains(#""attempt":2"#) }
        #expect(attempts == [hours >= 24, false])
    }

    @Test("spends attempts after a day on a job with a future time, but not before its expiration")
    func budgetBounds() throws {
        let cases: [(String, Int?, Bool)] = [
            (#""alert":"x","enqueued_at":4000000000"#, nil, true), (#""alert":"x""#, 3 * 86_400, false),
            (#""alert":"x","expiration":4000000000"#, nil, false), (#""alert":"x""#, nil, true),
        ]
        for (members, expiration, spends) in cases {
            let scene = try EngineScene { $0.apps[0].expiration = expiration }
            scene.pushOne(token: "ab", members)
            scene.finish(.internalServerError)
            let wrapped = try #require(scene.queue.postponed.first?.body)
            let seen = try #require(wrapped.firstMatch(of: /"enqueued":(\d+)/))
            let dayEarlier = try #require(Int64(seen.1)) - 25 * 3_600_000
            scene.push(wrapped.replacing(seen.0, with: #""enqueued":\#(dayEarlier)"#))
            scene.finish(.internalServerError)
            let last = try #require(scene.queue.postponed.last?.body)
            #expect(last.contains(#""attempt":\#(spends ? 2 : 1)"#), "\(members): \(last)")
        }
    }

    @Test("is not disturbed by failures between answers")
    func occasional() throws {
        for number in 0..<60 {
            scene.pushOne(token: String(1000 + number))
            if number % 5 == 0 { scene.answer(EngineScene.delivered) } else { scene.answer(.serviceUnavailable) }
        }
        #expect(scene.lane.senders[0].gate.sendsFreely && scene.transport.sent.count == 60)
        #expect(!scene.log.events.contains("server_errors"))
    }

    @Test("gives up a call within seconds, also in an outage", arguments: ["voip", "pushtotalk"])
    func calls(type: String) throws {
        // Other jobs keep the endpoint's breaker open.
        scene.fail(3)
        let begin = scene.loop.now
        for number in 0..<20 { scene.pushOne(token: String(2000 + number), #""alert":"x","push_type":"\#(type)""#) }
        var last = begin
        scene.pass(.minutes(10)) {
            let calls = scene.transport.submitted.contains { $0.notification.pushType != .alert }
            if calls { last = scene.loop.now }
            return .response(Response(status: 503, reason: .serviceUnavailable))
        }
        #expect(scene.queue.stats["expired"] == 20 && scene.queue.dead.isEmpty, "\(scene.stats)")
        #expect(last - begin <= .milliseconds(RoutedApp.callPatience), "a call rang \(last - begin) late")
        #expect(scene.log.events.contains("server_errors"))
    }

    @Test("closes the endpoint's breaker soon if the deferred jobs have expired")
    func expiredJobs() throws {
        for number in 0..<EndpointBreaker.limit {
            scene.pushOne(token: String(1000 + number), #""alert":"x","expiration":"60s""#)
            scene.answer(.serviceUnavailable, retryAfter: 600)
        }
        scene.run()
        #expect(!scene.lane.senders[0].gate.sendsFreely && scene.stats == ["expired": EndpointBreaker.limit])
        scene.run(.seconds(20))
        #expect(scene.lane.senders[0].gate.sendsFreely && scene.log.events.contains("endpoint_idle"))
    }

    // MARK: Refused connections

    @Test(
        "resends on another connection without an attempt, and pauses the app if a new one is refused too",
        arguments: [APNSReason.tooManyProviderTokenUpdates, .unrelatedKeyIDInToken])
    func connections(reason: APNSReason) throws {
        scene.transport.newestConnection = 3
        scene.push(EngineScene.job("aa"), EngineScene.job("bb"), EngineScene.job("cc"))
        scene.answer(reason, on: 1)
        scene.answer(reason, on: 1)
        scene.answer(reason, on: 3)
        #expect(scene.stores.fakeFleet.paused.isEmpty)
        #expect(scene.counters.resent == 3 && scene.transport.sent.count == 6)
        #expect(scene.log.events.count { $0 == "connection_refused" } == 1)
        scene.answer(reason, on: 4)
        #expect(scene.stores.fakeFleet.paused.map(\.reason) == [Reason.Code.apns(reason).text])
        #expect(scene.transport.calls.contains("retire"), "all connections are left when the app is paused")
        scene.run()
        #expect(scene.queue.stats["retried"] == nil && scene.queue.dead.isEmpty)
    }

    @Test("meets another such connection after a minute without pausing the app")
    func connectionsLater() throws {
        for connection in 0..<3 {
            scene.transport.newestConnection = connection
            scene.pushOne(token: String(1000 + connection))
            scene.answer(.unrelatedKeyIDInToken, on: connection)
            scene.answer(EngineScene.delivered)
            scene.run(.seconds(61))
        }
        #expect(scene.stores.fakeFleet.paused.isEmpty)
        #expect(scene.queue.stats["delivered"] == 3 && scene.counters.resent == 3)
    }

    @Test("sends each probe of a paused app on a new connection")
    func probes() throws {
        scene.pushOne(token: "aa")
        scene.answer(.topicDisallowed)
        func retirements() -> Int { scene.transport.calls.count { $0 == "retire" } }
        #expect(retirements() == 1)
        for probe in 1...3 {
            scene.pushOne(token: "b\(probe)")
            scene.run(.seconds(2))
            #expect(scene.transport.submitted.count == 1 && retirements() == 2 * probe)
            scene.answer(.topicDisallowed)
            #expect(retirements() == 2 * probe + 1)
        }
    }

    // MARK: Unusual answers

    @Test("does not pause the app for one forbidden job, and gives it up after three attempts")
    func forbiddenJob() throws {
        scene.pushOne(token: "aa")
        for _ in 0..<3 {
            scene.finish(.forbidden)
            guard scene.queue.dead.isEmpty else { break }
            scene.pushOne(token: "bb")
            scene.answer(EngineScene.delivered)
            scene.passUntilSent()
        }
        #expect(scene.stores.fakeFleet.paused.isEmpty && scene.queue.dead.map(\.reason) == ["Forbidden"])
        #expect(scene.transport.tokens == ["aa", "bb", "aa", "bb", "aa"])
    }

    @Test("pauses the app when a second job is forbidden, and none was delivered in between")
    func forbiddenApp() throws {
        scene.push(EngineScene.job("aa"), EngineScene.job("bb"))
        scene.answer(.forbidden)
        #expect(scene.stores.fakeFleet.paused.isEmpty)
        scene.answer(.forbidden)
        #expect(scene.stores.fakeFleet.paused.map(\.reason) == [Reason.Code.apns(.forbidden).text])
        scene.run()
        #expect(scene.stats == ["retried": 1, "deferred": 1])
    }

    @Test("pauses the app when another server answers", arguments: [302, 400, 404, 407, 421])
    func notAPNs(status: Int) throws {
        scene.push(EngineScene.job("aa"), EngineScene.job("bb"))
        scene.answer(.response(Response(status: status)))
        scene.finish(.response(Response(status: status)))
        let pause = try #require(scene.stores.fakeFleet.paused.first)
        #expect(scene.stores.fakeFleet.paused.count == 1 && pause.reason == Reason.Code.http(status).text)
        #expect(pause.detail?.contains("may come from another server") == true)
        #expect(scene.stats == ["deferred": 2] && scene.queue.dead.isEmpty)
    }

    @Test("tries a notification with an unknown reason up to three times, minutes apart, and logs the reason")
    func unknownReason() throws {
        scene.pushOne(token: "aa")
        var times: [NIODeadline] = []
        while scene.queue.dead.isEmpty, times.count < 5 {
            times.append(scene.loop.now)
            scene.finish(.response(Response(status: 400, reasonText: "QuiteNew")))
            if scene.queue.dead.isEmpty { scene.passUntilSent() }
        }
        #expect(scene.queue.dead.map(\.reason) == ["QuiteNew"] && times.count == 3)
        #expect(zip(times, times.dropFirst()).allSatisfy { $1 - $0 >= .minutes(1) })
        let line = scene.log.lines.first { $0.metadata["event"] == "unknown_reason" }
        #expect(line?.level == .error && line?.metadata["reason"] == "QuiteNew")
    }

    @Test("marks a token that the gateway names late, while it accepts others")
    func lateToken() throws {
        let token = ByteBuffer(string: "abcd")
        scene.lane.senders[0].answers.gateway(dropped: 1, refusing: token, with: .invalidToken)
        scene.run()
        #expect(scene.stores.fakeFleet.invalid.isEmpty, "it may be the certificate")
        scene.finishEach(1000..<1003, .confirmed)
        scene.lane.senders[0].answers.gateway(dropped: 1, refusing: token, with: .invalidToken)
        scene.lane.senders[0].answers.gateway(dropped: 1, refusing: token, with: .processingError)
        scene.run()
        #expect(scene.stores.fakeFleet.invalid.map(\.token) == [token])
    }

    @Test("tries the next key also for the other spelling of a wrong environment that APNs sends")
    func spellings() {
        #expect(Reason(.badEnvironmentKeyInToken).concernsKey && Reason(.badEnvironmentKeyIDInToken).concernsKey)
        #expect(Reason(.broadcastFeatureNotEnabled).concernsBroadcasts)
    }

    // MARK: A late connection to Redis

    @Test("waits for the fleet's provider token once Redis answers, and does not sign its own")
    func lateRedis() throws {
        let key = try SigningKey(pem: Data(contentsOf: URL(filePath: TestCertificates.path("AuthKey_ABC123DEFG.p8"))))
        let (own, others) = (try Self.source(key), try Self.source(key))
        let scene = try EngineScene(isStarted: false) { $0.apps[0].credential = .providerTokens([own]) }
        let fleetToken = try others.token(now: 1_800_000_000 - 60).jwt
        scene.stores.fakeFleet.providerToken = fleetToken
        scene.stores.fakeFleet.isReady = false
        scene.queue.isReady = false
        try scene.start()
        scene.run(TokenSharing.patience * 2)
        scene.queue.isReady = true
        scene.pushOne()
        scene.run(.seconds(1))
        #expect(scene.transport.providerTokens.isEmpty && scene.transport.sent.isEmpty)
        scene.stores.fakeFleet.isReady = true
        scene.run(.seconds(1))
        #expect(scene.transport.providerTokens == [fleetToken] && scene.transport.sent.count == 1)
    }

    private static func source(_ key: SigningKey) throws -> ProviderTokenSource {
        try ProviderTokenSource(key: key, keyID: "ABC123DEFG", teamID: "TEAM123456")
    }
}

extension EngineScene {
    fileprivate func fail(_ count: Int) {
        finishEach(1000..<1000 + count, .response(Response(status: 503, reason: .serviceUnavailable)))
    }

    /// Advances time. Jobs return when they are due, and requests of the first app are answered at once, or not at all.
    fileprivate func pass(_ time: TimeAmount, answer: () -> RequestResult?) {
        let end = loop.now + time
        var since: [UInt64: NIODeadline] = [:]
        while loop.now < end {
            run(.milliseconds(200))
            if queue.returnDue() { lane.wake(QueueID(index: 0)) }
            let now = loop.now
            for index in transport.submitted.indices.reversed() {
                if let result = answer() {
                    transport.isUnanswered = false
                    transport.answer(result, at: index)
                    continue
                }
                let began = since[transport.submitted[index].tag] ?? now
                since[transport.submitted[index].tag] = began
                if now - began >= .seconds(5) { transport.isUnanswered = true }
                guard now - began >= .seconds(20) else { continue }
                since[transport.submitted[index].tag] = nil
                transport.answer(.uncertain(.timedOut), at: index)
            }
        }
    }

    fileprivate func passUntilSent() {
        for _ in 0..<10_000 where transport.submitted.isEmpty {
            run(.milliseconds(100))
            if queue.returnDue() { lane.wake(QueueID(index: 0)) }
        }
    }
}
