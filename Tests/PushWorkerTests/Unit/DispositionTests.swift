import APNS
import NIOCore
import PushJob
import PushQueue
import Testing

@testable import PushWorker

/// The design's table of what follows from each answer of APNs, without a lane.
@Suite("The disposition of a notification")
struct DispositionTests {
    private static let now: Int64 = 1_800_000_000_000

    private static func facts(
        attempt: Int = 1, members: String = "", reason: String = "ServiceUnavailable", failedBefore: Int64 = 60_000,
        _ change: (inout Disposition.Facts) -> Void = { _ in }
    ) throws -> Disposition.Facts {
        var text = #"{"id":"j","token":"aabbccdd","alert":"x"\#(members)}"#
        if attempt > 1 {
            text = """
                {"apns_worker":1,"attempt":\(attempt),"error":{"reason":"\(reason)","at":\(now - failedBefore)},\
                "job":\(text)}
                """
        }
        let job = try JobDecoder.decode(ByteBuffer(string: text), as: .native)
        var facts = Disposition.Facts(
            job: job, policy: RetryPolicy(), jitter: 0.5, now: now, firstSeen: now - 1000)
        change(&facts)
        return facts
    }

    private static let paused: @Sendable (inout Disposition.Facts) -> Void = {
        $0.pause = "InvalidProviderToken"
        $0.isProbe = true
    }

    /// One answer and what follows from it.
    struct Row: CustomTestStringConvertible, Sendable {
        let name: String
        let verdict: Verdict
        let facts: @Sendable () throws -> Disposition.Facts
        let expected: Disposition
        var testDescription: String { name }

        init(
            _ name: String, _ verdict: Verdict, _ facts: @escaping @Sendable () throws -> Disposition.Facts,
            _ expected: Disposition
        ) {
            (self.name, self.verdict, self.facts, self.expected) = (name, verdict, facts, expected)
        }

        init(_ name: String, _ verdict: Verdict, _ expected: Disposition) {
            self.init(name, verdict, { try DispositionTests.facts() }, expected)
        }
    }

    private static func retried(
        _ reason: Reason, _ delay: Int64, spends: Bool = true, isUncertain: Bool = false
    ) -> Disposition {
        Disposition(
            .postpone(.retried, reason, .milliseconds(delay), spendsAttempt: spends), app: .inconclusive,
            isUncertain: isUncertain)
    }

    private static func pause(_ reason: Reason) -> Disposition {
        Disposition(.defer(Reason(reason.code), .likePausedApp), app: .pause(reason))
    }

    private static func resent(
        _ reason: Reason, in isolation: Isolation? = nil, counts: Bool = true, app: Disposition.OfApp = .none,
        isUncertain: Bool = false
    ) -> Disposition {
        Disposition(
            .resend(reason, isolation: isolation, counts: counts), app: app, device: .keep, isUncertain: isUncertain)
    }

    static let rows: [Row] = [
        Row("A delivery ends a pause", .delivered, Disposition(.end(.delivered, nil), app: .resume)),
        Row(
            "A 410 marks the token with APNs' time", .tokenInvalid(reason: "Unregistered", since: 5),
            Disposition(.markInvalid("Unregistered", since: 5), app: .resume)),

        // Suspicions.
        Row(
            "A bad token is marked while APNs accepts others", .tokenSuspect(reason: "BadDeviceToken"),
            { try facts { $0.finding = .badToken(.mark) } }, Disposition(.markInvalid("BadDeviceToken", since: nil))),
        Row(
            "A bad token waits while nothing else shows that the app is right", .tokenSuspect(reason: "BadDeviceToken"),
            { try facts { $0.finding = .badToken(.hold) } },
            Disposition(.postpone(.retried, "BadDeviceToken", .milliseconds(7500), spendsAttempt: true))),
        Row(
            "A bad token is believed at its third attempt", .tokenSuspect(reason: "BadDeviceToken"),
            { try facts(attempt: 3) { $0.finding = .badToken(.hold) } },
            Disposition(.markInvalid("BadDeviceToken", since: nil))),
        Row(
            "A bad token without another attempt is a dead letter", .tokenSuspect(reason: "BadDeviceToken"),
            { try facts(members: #","max_attempts":1"#) { $0.finding = .badToken(.hold) } },
            Disposition(.end(.dead, "BadDeviceToken"))),
        Row(
            "Mostly bad tokens pause the app", .tokenSuspect(reason: "BadDeviceToken"),
            { try facts { $0.finding = .badToken(.trip) } },
            Disposition(
                .defer("BadDeviceToken", .likePausedApp),
                app: .pause(
                    Reason(
                        Reason("BadDeviceToken").code,
                        detail:
                            "for most tokens; are the environment and the topic right? No token was marked invalid")))),
        Row(
            "A 410 without a reason for most tokens is not APNs'", .tokenSuspect(reason: Reason(.http(410))),
            { try facts { $0.finding = .badToken(.trip) } },
            Disposition(.defer(Reason(.http(410)), .likePausedApp), app: .pause(.notAPNs(status: 410)))),
        Row(
            "A bad token answered to a probe shows that the app is right", .tokenSuspect(reason: "BadDeviceToken"),
            {
                try facts {
                    paused(&$0); $0.finding = .badToken(.mark)
                }
            },
            Disposition(.markInvalid("BadDeviceToken", since: nil), app: .resume)),
        Row(
            "A probe of an app that was paused for bad tokens shows nothing new",
            .tokenSuspect(reason: "BadDeviceToken"),
            {
                try facts {
                    $0.pause = "BadDeviceToken"; $0.isProbe = true
                }
            },
            Disposition(.defer("BadDeviceToken", .likePausedApp), app: .pause("BadDeviceToken"))),
        Row(
            "Bad tokens in flight when the app was paused wait", .tokenSuspect(reason: "BadDeviceToken"),
            { try facts { $0.pause = "BadDeviceToken" } }, Disposition(.defer("BadDeviceToken", .likePausedApp))),

        // Retries.
        Row(
            "No answer spends an attempt", .retry(reason: "NoAnswer", retryAfter: nil, isUncertain: true),
            retried("NoAnswer", 500, isUncertain: true)),
        Row(
            "The last attempt makes a dead letter with its cause",
            .retry(reason: "NoAnswer", retryAfter: nil, isUncertain: true), { try facts(attempt: 10) },
            Disposition(.end(.dead, Reason(.attemptsExhausted), cause: "NoAnswer"), app: .inconclusive)),
        Row(
            "A job's own number of attempts outranks the worker's",
            .retry(reason: "NoAnswer", retryAfter: nil, isUncertain: true),
            { try facts(members: #","max_attempts":1"#) },
            Disposition(.end(.dead, Reason(.attemptsExhausted), cause: "NoAnswer"), app: .inconclusive)),
        Row(
            "A job that must not be sent twice is dropped",
            .retry(reason: "NoAnswer", retryAfter: nil, isUncertain: true),
            { try facts(members: #","on_uncertain":"drop""#) },
            Disposition(.end(.dropped, "NoAnswer"), app: .inconclusive)),
        Row(
            "No answer from an endpoint that answers nothing spends no attempt",
            .retry(reason: "NoAnswer", retryAfter: nil, isUncertain: true), { try facts { $0.endpointDelay = 20_000 } },
            retried("NoAnswer", 20_000, spends: false, isUncertain: true)),
        Row(
            "A 503 spends no attempt on the first day", .serverError(reason: "ServiceUnavailable", retryAfter: nil),
            { try facts(attempt: 9) { $0.policy.maximumAttempts = 9 } },
            retried("ServiceUnavailable", 90_000, spends: false)),
        Row(
            "A 503 waits at least as long as the endpoint's breaker",
            .serverError(reason: "ServiceUnavailable", retryAfter: nil), { try facts { $0.endpointDelay = 40_000 } },
            retried("ServiceUnavailable", 40_000, spends: false)),
        Row(
            "A 503 spends attempts after a day without an expiration",
            .serverError(reason: "ServiceUnavailable", retryAfter: nil),
            { try facts(attempt: 2) { $0.firstSeen = now - 25 * 3_600_000 } }, retried("ServiceUnavailable", 90_000)),
        Row(
            "A 503 spends no attempt until a job expires", .serverError(reason: "ServiceUnavailable", retryAfter: nil),
            {
                try facts(attempt: 2) {
                    $0.firstSeen = now - 25 * 3_600_000; $0.hasEnd = true
                }
            },
            retried("ServiceUnavailable", 90_000, spends: false)),
        Row(
            "A 429 delays the device", .throttled(reason: "TooManyRequests", retryAfter: 7),
            Disposition(
                .postpone(.retried, "TooManyRequests", .behindDevice, spendsAttempt: true), app: .inconclusive,
                device: .throttle(7500))),

        // Lost connections.
        Row(
            "A notification lost with others is sent again apart", .resendApart(reason: "ConnectionLost"),
            resent("ConnectionLost", in: .withFew, counts: false, app: .inconclusive, isUncertain: true)),
        Row(
            "A notification lost with a few others is sent again alone", .resendApart(reason: "ConnectionLost"),
            { try facts { $0.isolation = .withFew } },
            resent("ConnectionLost", in: .alone, counts: false, app: .inconclusive, isUncertain: true)),
        Row(
            "A notification on a stale connection is sent again", .resendUncertain(reason: "ConnectionLost"),
            resent("ConnectionLost", in: .shared, counts: false, app: .inconclusive, isUncertain: true)),
        Row(
            "A lost notification of a paused app is retried later", .resendUncertain(reason: "ConnectionLost"),
            { try facts { $0.pause = "Forbidden" } }, retried("ConnectionLost", 500, spends: false, isUncertain: true)),
        Row(
            "A lost notification is not resent by a lane that ends", .resendApart(reason: "ConnectionLost"),
            { try facts { $0.isWorking = false } },
            retried("ConnectionLost", 500, spends: false, isUncertain: true)),
        Row(
            "A lost job that must not be sent twice is dropped", .resendApart(reason: "ConnectionLost"),
            { try facts(members: #","on_uncertain":"drop""#) },
            Disposition(.end(.dropped, "ConnectionLost"), app: .inconclusive)),

        // Never processed.
        Row("A refused stream is sent again at once", .resend(after: .refusedStream), resent("RefusedStream")),
        Row(
            "From the second refusal on, a stream waits", .resend(after: .refusedStream),
            { try facts { $0.resends = 1 } },
            Disposition(.defer("RefusedStream", .milliseconds(750)), app: .inconclusive)),
        Row(
            "A notification discarded by the gateway does not count", .resend(after: .discarded),
            { try facts { $0.resends = 200 } }, resent("Discarded", counts: false)),
        Row(
            "After a day a refused stream spends attempts", .resend(after: .refusedStream),
            {
                try facts {
                    $0.resends = 1; $0.firstSeen = now - 25 * 3_600_000
                }
            }, retried("RefusedStream", 500)),

        // Connections, keys and the app.
        Row(
            "A refused connection is replaced", .retireConnection(reason: "TooManyProviderTokenUpdates"),
            { try facts { $0.finding = .connectionRetired } }, resent("TooManyProviderTokenUpdates")),
        Row(
            "A second refused connection pauses the app", .retireConnection(reason: "TooManyProviderTokenUpdates"),
            { try facts { $0.finding = .connectionRefusedAgain } }, pause("TooManyProviderTokenUpdates")),
        Row(
            "A second refused connection with another key is sent with it",
            .retireConnection(reason: "UnrelatedKeyIdInToken"),
            {
                try facts {
                    $0.finding = .connectionRefusedAgain; $0.hasOtherKey = true
                }
            },
            resent("UnrelatedKeyIdInToken", app: .changeKey("UnrelatedKeyIdInToken"))),
        Row(
            "A token that can't be renewed pauses the app and names the clock",
            .retireConnection(reason: "ExpiredProviderToken"),
            pause(Reason(Reason("ExpiredProviderToken").code, detail: "is this machine's clock right?"))),
        Row("A refused key pauses the app", .pauseApp(reason: "InvalidProviderToken"), pause("InvalidProviderToken")),
        Row(
            "A refused key is replaced by the next", .pauseApp(reason: "InvalidProviderToken"),
            { try facts { $0.hasOtherKey = true } },
            resent("InvalidProviderToken", app: .changeKey("InvalidProviderToken"))),
        Row(
            "Another key does not help against a wrong topic", .pauseApp(reason: "TopicDisallowed"),
            { try facts { $0.hasOtherKey = true } }, pause("TopicDisallowed")),
        Row(
            "A gateway that drops each connection pauses the app, and its notification may be sent twice",
            .pauseApp(reason: Reason(.request(.hungUp))),
            Disposition(
                .defer(Reason(.request(.hungUp)), .likePausedApp), app: .pause(Reason(.request(.hungUp))),
                isUncertain: true)),
        Row(
            "The first Forbidden may be the job's own fault", .forbidden(reason: "Forbidden"),
            { try facts { $0.finding = .forbidden(isOfApp: false) } }, retried("Forbidden", 120_000)),
        Row(
            "A third Forbidden of one job makes a dead letter", .forbidden(reason: "Forbidden"),
            { try facts(attempt: 3) { $0.finding = .forbidden(isOfApp: false) } },
            Disposition(.end(.dead, "Forbidden"), app: .inconclusive)),
        Row(
            "Forbidden for two jobs pauses the app", .forbidden(reason: "Forbidden"),
            { try facts { $0.finding = .forbidden(isOfApp: true) } }, pause("Forbidden")),

        // Push types.
        Row(
            "A push type is refused while the plain topic is accepted", .pushTypeRefused(reason: "TopicDisallowed"),
            { try facts { $0.finding = .pushType(.pushType) } }, Disposition(.end(.dead, "TopicDisallowed"))),
        Row(
            "A refused push type waits for the plain topic", .pushTypeRefused(reason: "TopicDisallowed"),
            { try facts { $0.finding = .pushType(.unknown) } },
            Disposition(.defer("TopicDisallowed", .milliseconds(10_000)))),
        Row(
            "A refused push type pauses an app that sends nothing else", .pushTypeRefused(reason: "TopicDisallowed"),
            { try facts { $0.finding = .pushType(.app) } }, pause("TopicDisallowed")),
        Row(
            "A probe with a refused push type shows nothing about another fault",
            .pushTypeRefused(reason: "TopicDisallowed"), { try facts(paused) },
            Disposition(.defer("TopicDisallowed", .likePausedApp), app: .inconclusive)),

        // The rest.
        Row(
            "Broadcasts wait until they are enabled", .deferred(reason: "FeatureNotEnabled"),
            Disposition(.defer("FeatureNotEnabled", .milliseconds(60_000)), app: .inconclusive)),
        Row("An unknown reason is tried minutes later", .unknown(reason: "NewReason"), retried("NewReason", 120_000)),
        Row(
            "An unknown reason is tried three times", .unknown(reason: "NewReason"), { try facts(attempt: 3) },
            Disposition(.end(.dead, "NewReason"), app: .inconclusive)),
        Row(
            "A documented refusal makes a dead letter", .dead(reason: "PayloadTooLarge"),
            Disposition(.end(.dead, "PayloadTooLarge"), app: .inconclusive)),
    ]

    @Test("It follows the design's table.", arguments: rows)
    func table(row: Row) throws { #expect(try Disposition(row.verdict, row.facts()) == row.expected) }

    @Test("Nothing is lost: each verdict ends, postpones or resends in every state.")
    func total() throws {
        let verdicts = Self.rows.map(\.verdict)
        let findings: [Disposition.Finding] =
            [.none, .connectionRetired, .connectionRefusedAgain]
            + [BadTokenGuard.Judgement.mark, .hold, .trip].map { .badToken($0) }
            + [true, false].map { .forbidden(isOfApp: $0) }
            + [Evidence.TopicFault.pushType, .app, .unknown].map { .pushType($0) }
        for verdict in verdicts {
            for finding in findings {
                for bits in 0..<32 {
                    let facts = try Self.facts(attempt: bits & 1 == 0 ? 1 : 10) {
                        $0.finding = finding
                        $0.pause = bits & 2 == 0 ? nil : "Forbidden"
                        $0.isProbe = bits & 4 != 0
                        $0.endpointDelay = bits & 8 == 0 ? nil : 5000
                        $0.isWorking = bits & 16 == 0
                    }
                    let disposition = Disposition(verdict, facts)
                    switch disposition.notification {
                    case .end(let outcome, let reason, _):
                        #expect(outcome == .delivered || reason != nil)
                        #expect(outcome != .delivered || verdict == .delivered)
                    case .postpone(_, _, .milliseconds(let delay), _): #expect(delay >= 0)
                    // Only a throttled device has an order of its own.
                    case .postpone(_, _, .behindDevice, _): #expect(disposition.device != .release)
                    case .postpone(_, _, .likePausedApp, _):
                        if facts.pause == nil {
                            guard case .pause = disposition.app else {
                                Issue.record("\(verdict) defers for an app that is not paused")
                                return
                            }
                        }
                    case .resend: #expect(disposition.device == .keep)
                    case .markInvalid: break
                    }
                }
            }
        }
    }
}
