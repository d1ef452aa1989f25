import APNS
import NIOCore
import PushJob
import PushQueue
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
            outage == .silence ? nil : .answer(.serviceUnavailable)
        }
        let requests = scene.transport.sent.count
        // The lane sends 100 requests at once, and sixty more until the endpoint is slow. Then it sends one fresh notification and one
        // retry per second, and after five minutes every five seconds.
        #expect(requests >= 100 && requests < 160 + 2 * (300 + 55 * 60 / 5) + 100, "\(requests) requests")
        #expect(scene.queue.dead.isEmpty, "\(scene.stats)")
        #expect(scene.spentNoAttempt)
        #expect(scene.counters.possibleDuplicates <= (outage == .silence ? requests : 0))
        #expect(scene.log.events.contains("scope_slow"))
        #expect(scene.loop.now - begin >= .hours(1))
        #expect(!scene.lane.observer.report().isReady, "nothing was accepted for 30 s")

        scene.transport.isUnanswered = false
        scene.pass(.minutes(40)) { EngineScene.delivered }
        #expect(scene.queue.stats["delivered"] == jobs && scene.queue.dead.isEmpty, "\(scene.stats)")
        #expect(Set(scene.transport.tokens).count == jobs)
        #expect(scene.log.events.contains("scope_good"))
        #expect(scene.isDone)
    }

    @Test("shows the endpoint's state in the heartbeat while it lasts, also between probes")
    func visible() throws {
        scene.queue.jobs = (0..<400).map { EngineScene.job(String(100_000 + $0)) }
        scene.pass(.minutes(1)) { .answer(.serviceUnavailable) }
        let sender = scene.sender
        let record = try #require(scene.records.first)
        #expect(record.scope == .endpoint && record.state == .slow && record.reason == "ServiceUnavailable")
        #expect(record.jobs.isEmpty && record.failures >= 60)
        #expect(sender.problem?.contains("ServiceUnavailable") == true)
        #expect(scene.lane.observer.report().apps.first?.state == .unavailable)
        scene.pass(.minutes(6)) { EngineScene.delivered }
        #expect(sender.problem == nil && scene.lane.observer.report().apps.first?.state == .sending)
    }

    @Test("does not delay another app")
    func claimsLess() throws {
        let scene = try EngineScene(apps: ["shop", "news"]) { configuration in
            configuration.apps[1].endpoint = .sandbox
        }
        for number in 0..<100 {
            scene.queue.jobs.append(#"{"app":"shop","alert":"x","token":"\#(1000 + number)"}"#)
        }
        scene.pass(.seconds(3)) { .answer(.serviceUnavailable) }
        #expect(!scene.sender.sendsFreely)
        for number in 0..<50 {
            scene.queue.jobs.append(#"{"app":"shop","alert":"x","token":"\#(2000 + number)"}"#)
            scene.queue.jobs.append(#"{"app":"news","alert":"x","token":"\#(3000 + number)"}"#)
        }
        scene.wake()
        scene.run(.milliseconds(500))
        #expect(scene.transport(1).sent.count == 50)
        #expect(scene.queue.stats["deferred:EndpointUnavailable"] ?? 0 > 10 && scene.queue.dead.isEmpty)
    }

    @Test("gives up a call within seconds, also in an outage", arguments: ["voip", "pushtotalk"])
    func calls(type: String) throws {
        // Other jobs keep the endpoint slow.
        scene.queue.jobs = (0..<100).map { EngineScene.job(String(100_000 + $0)) }
        scene.pass(.seconds(2)) { .answer(.serviceUnavailable) }
        let begin = scene.loop.now
        for number in 0..<20 { scene.pushOne(token: String(2000 + number), #""alert":"x","push_type":"\#(type)""#) }
        var last = begin
        scene.pass(.minutes(10)) {
            let calls = scene.transport.submitted.contains { $0.notification.pushType != .alert }
            if calls { last = scene.loop.now }
            return .answer(.serviceUnavailable)
        }
        #expect(scene.queue.stats["expired"] == 20 && scene.queue.dead.isEmpty, "\(scene.stats)")
        // A job that has waited for less than a second is not checked again.
        #expect(last - begin <= .milliseconds(RoutedApp.callPatience + 1000), "a call rang \(last - begin) late")
        #expect(scene.log.events.contains("scope_slow"))
    }

    // MARK: Refused connections

    @Test(
        "resends on another connection without an attempt; if a new one is refused too, the notification waits",
        arguments: [APNSReason.tooManyProviderTokenUpdates, .unrelatedKeyIDInToken])
    func connections(reason: APNSReason) throws {
        scene.transport.newestConnection = 3
        scene.push(EngineScene.job("aa"), EngineScene.job("bb"), EngineScene.job("cc"))
        scene.answer(reason, on: 1)
        scene.answer(reason, on: 1)
        scene.answer(reason, on: 3)
        #expect(scene.counters.resent == 3 && scene.transport.sent.count == 6)
        #expect(scene.log.events.count { $0 == "connection_refused" } == 1)
        scene.answer(reason, on: 4)
        scene.run()
        #expect(scene.queue.stats["retried"] == 1 && scene.queue.dead.isEmpty)
        scene.deliverAll()
        #expect(scene.stats["delivered"] == 2)
    }

    @Test("meets another such connection after a minute")
    func connectionsLater() throws {
        for connection in 0..<3 {
            scene.transport.newestConnection = connection
            scene.pushOne(token: String(1000 + connection))
            scene.answer(.unrelatedKeyIDInToken, on: connection)
            scene.answer(EngineScene.delivered)
            scene.run(.seconds(61))
        }
        #expect(scene.queue.stats["delivered"] == 3 && scene.counters.resent == 3)
    }

    // MARK: Unusual answers

    @Test("loses and ends nothing while another server answers everything", arguments: [302, 400, 404, 407, 410, 421])
    func notAPNs(status: Int) throws {
        scene.queue.jobs = (0..<200).map { EngineScene.job(String(100_000 + $0)) }
        scene.pass(.minutes(20)) { .response(Response(status: status)) }
        #expect(scene.queue.dead.isEmpty && scene.fleet.invalid.isEmpty)
        #expect(scene.spentNoAttempt)
        #expect(!scene.sender.sendsFreely)
        scene.pass(.minutes(40)) { EngineScene.delivered }
        #expect(scene.queue.stats["delivered"] == 200, "\(scene.stats)")
    }

    @Test("tries a notification with an unknown reason up to three times, minutes apart, and logs the reason")
    func unknownReason() throws {
        scene.pushOne(token: "aa")
        var times: [NIODeadline] = []
        for number in 0..<100 where scene.queue.dead.isEmpty {
            scene.passByToken(.seconds(10)) { token in
                guard token == "aa" else { return EngineScene.delivered }
                times.append(scene.loop.now)
                return .response(Response(status: 400, reasonText: "QuiteNew"))
            }
            scene.pushOne(token: String(1000 + number))
        }
        // The first failure spends no attempt, because no other notification was delivered before it.
        #expect(scene.queue.dead.map(\.reason) == ["AttemptsExhausted"] && times.count == 4)
        #expect(zip(times, times.dropFirst()).allSatisfy { $1 - $0 >= .minutes(1) })
        let line = scene.log.lines.first { $0.metadata["event"] == "unknown_reason" }
        #expect(line?.level == .error && line?.metadata["reason"] == "QuiteNew")
    }

    @Test("marks a token that the gateway names late, while it accepts others")
    func lateToken() throws {
        let token = ByteBuffer(string: "abcd")
        scene.sender.gateway(dropped: 1, refusing: token, with: .invalidToken)
        scene.run()
        #expect(scene.fleet.invalid.isEmpty, "it may be the certificate")
        scene.finishEach(1000..<1003, .confirmed)
        scene.sender.gateway(dropped: 1, refusing: token, with: .invalidToken)
        scene.sender.gateway(dropped: 1, refusing: token, with: .processingError)
        scene.run()
        #expect(scene.fleet.invalid.map(\.token) == [token])
    }

    @Test("tries the next key also for the other spelling of a wrong environment that APNs sends")
    func spellings() {
        #expect(Reason(.badEnvironmentKeyInToken).concernsKey && Reason(.badEnvironmentKeyIDInToken).concernsKey)
        #expect(Reason(.broadcastFeatureNotEnabled).concernsBroadcasts)
    }

    // MARK: A late connection to Redis

    @Test("waits for the fleet's provider token once Redis answers, and does not sign its own")
    func lateRedis() throws {
        let credential = try EngineScene.keyCredential()
        let scene = try EngineScene(isStarted: false) { $0.apps[0].credential = credential }
        let other = try #require(EngineScene.keyCredential().tokenSources.first)
        let fleetToken = try other.token(now: 1_800_000_000 - 60).jwt
        scene.fleet.providerToken = fleetToken
        scene.fleet.isReady = false
        scene.queue.isReady = false
        try scene.start()
        scene.run(TokenSharing.patience * 2)
        scene.queue.isReady = true
        scene.pushOne()
        scene.run(.seconds(1))
        #expect(scene.transport.providerTokens.isEmpty && scene.transport.sent.isEmpty)
        scene.fleet.isReady = true
        scene.run(.seconds(1))
        #expect(scene.transport.providerTokens == [fleetToken] && scene.transport.sent.count == 1)
    }
}
