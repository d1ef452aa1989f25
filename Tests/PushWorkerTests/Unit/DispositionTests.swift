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
        attempt: Int = 1, members: String = "", _ change: (inout Disposition.Facts) -> Void = { _ in }
    ) throws -> Disposition.Facts {
        var text = #"{"id":"j","token":"aabbccdd","alert":"x"\#(members)}"#
        if attempt > 1 {
            let error = #"{"reason":"ServiceUnavailable","at":\#(now - 60_000)}"#
            text = #"{"apns_worker":1,"attempt":\#(attempt),"error":\#(error),"job":\#(text)}"#
        }
        let job = try JobDecoder.decode(ByteBuffer(string: text))
        var facts = Disposition.Facts(job: job, policy: RetryPolicy(), jitter: 0.5, now: now, firstSeen: now - 1000)
        change(&facts)
        return facts
    }

    struct Row: CustomTestStringConvertible, Sendable {
        let testDescription: String
        let verdict: Verdict
        let expected: Disposition
        let attempt: Int
        let members: String
        let change: @Sendable (inout Disposition.Facts) -> Void

        init(
            _ name: String, _ verdict: Verdict, _ expected: Disposition, attempt: Int = 1, members: String = "",
            _ change: @escaping @Sendable (inout Disposition.Facts) -> Void = { _ in }
        ) {
            (testDescription, self.verdict, self.expected) = (name, verdict, expected)
            (self.attempt, self.members, self.change) = (attempt, members, change)
        }
    }

    private static let suspect = Verdict.tokenSuspect(reason: "BadDeviceToken")
    private static let noAnswer = Verdict.retry(reason: "NoAnswer", retryAfter: nil, isUncertain: true)
    private static let unavailable = Verdict.serverError(reason: "ServiceUnavailable", retryAfter: nil)
    private static let typeRefused = Verdict.pushTypeRefused(reason: "TopicDisallowed")
    private static let lost = Verdict.resendApart(reason: "ConnectionLost")

    private static let marked = Disposition(.markInvalid("BadDeviceToken", since: nil))

    private static func dead(_ reason: Reason, cause: Reason? = nil) -> Disposition {
        Disposition(.end(.dead, reason, cause: cause), app: .inconclusive)
    }

    private static func retried(
        _ reason: Reason, _ delay: Int64, spends: Bool = true, isUncertain: Bool = false
    ) -> Disposition {
        Disposition(
            .postpone(.retried, reason, .milliseconds(delay), spendsAttempt: spends), app: .inconclusive,
            isUncertain: isUncertain)
    }

    private static func pause(_ reason: Reason, isUncertain: Bool = false) -> Disposition {
        Disposition(.defer(Reason(reason.code), .likePausedApp), app: .pause(reason), isUncertain: isUncertain)
    }

    private static func resent(
        _ reason: Reason, in isolation: Isolation? = nil, counts: Bool = true, app: Disposition.OfApp = .none,
        isUncertain: Bool = false
    ) -> Disposition {
        Disposition(
            .resend(reason, isolation: isolation, counts: counts), app: app, device: .keep, isUncertain: isUncertain)
    }

    private static func resentLost(in isolation: Isolation) -> Disposition {
        resent("ConnectionLost", in: isolation, counts: false, app: .inconclusive, isUncertain: true)
    }

    static let rows: [Row] = [
        Row("A delivery ends a pause", .delivered, Disposition(.end(.delivered, nil), app: .resume)),
        Row(
            "A 410 marks the token with APNs' time", .tokenInvalid(reason: "Unregistered", since: 5),
            Disposition(.markInvalid("Unregistered", since: 5), app: .resume)),

        // Suspicions.
        Row("A bad token is marked while APNs accepts others", suspect, marked) { $0.finding = .badToken(.mark) },
        Row(
            "A bad token waits while nothing else shows that the app is right", suspect,
            Disposition(.postpone(.retried, "BadDeviceToken", .milliseconds(7500), spendsAttempt: true))
        ) { $0.finding = .badToken(.hold) },
        Row("A bad token is believed at its third attempt", suspect, marked, attempt: 3) {
            $0.finding = .badToken(.hold)
        },
        Row(
            "A bad token without another attempt is a dead letter", suspect, Disposition(.end(.dead, "BadDeviceToken")),
            members: #","max_attempts":1"#
        ) { $0.finding = .badToken(.hold) },
        Row("Mostly bad tokens pause the app", suspect, pause(mostlyBad)) { $0.finding = .badToken(.trip) },
        Row(
            "A 410 without a reason for most tokens is not APNs'", .tokenSuspect(reason: Reason(.http(410))),
            pause(.notAPNs(status: 410))
        ) { $0.finding = .badToken(.trip) },
        Row(
            "A bad token answered to a probe shows that the app is right", suspect,
            Disposition(.markInvalid("BadDeviceToken", since: nil), app: .resume)
        ) { ($0.pause, $0.isProbe, $0.finding) = ("InvalidProviderToken", true, .badToken(.mark)) },
        Row(
            "A probe of an app that was paused for bad tokens shows nothing new", suspect, pause("BadDeviceToken")
        ) { ($0.pause, $0.isProbe) = ("BadDeviceToken", true) },
        Row(
            "Bad tokens in flight when the app was paused wait", suspect,
            Disposition(.defer("BadDeviceToken", .likePausedApp))
        ) { $0.pause = "BadDeviceToken" },

        // Retries.
        Row("No answer spends an attempt", noAnswer, retried("NoAnswer", 500, isUncertain: true)),
        Row(
            "The last attempt makes a dead letter with its cause", noAnswer,
            dead(Reason(.attemptsExhausted), cause: "NoAnswer"), attempt: 10),
        Row(
            "A job's own number of attempts outranks the worker's", noAnswer,
            dead(Reason(.attemptsExhausted), cause: "NoAnswer"), members: #","max_attempts":1"#),
        Row(
            "A job that must not be sent twice is dropped", noAnswer,
            Disposition(.end(.dropped, "NoAnswer"), app: .inconclusive), members: #","on_uncertain":"drop""#),
        Row(
            "No answer from an endpoint that answers nothing spends no attempt", noAnswer,
            retried("NoAnswer", 20_000, spends: false, isUncertain: true)
        ) { $0.endpointDelay = 20_000 },
        Row(
            "A 503 spends no attempt on the first day", unavailable,
            retried("ServiceUnavailable", 90_000, spends: false), attempt: 9
        ) { $0.policy.maximumAttempts = 9 },
        Row(
            "A 503 waits at least as long as the endpoint's breaker", unavailable,
            retried("ServiceUnavailable", 40_000, spends: false)
        ) { $0.endpointDelay = 40_000 },
        Row(
            "A 503 spends attempts after a day without an expiration", unavailable,
            retried("ServiceUnavailable", 90_000), attempt: 2
        ) { $0.firstSeen = now - 25 * 3_600_000 },
        Row(
            "A 503 spends no attempt until a job expires", unavailable,
            retried("ServiceUnavailable", 90_000, spends: false), attempt: 2
        ) { ($0.firstSeen, $0.hasEnd) = (now - 25 * 3_600_000, true) },
        Row(
            "A 429 delays the device", .throttled(reason: "TooManyRequests", retryAfter: 7),
            Disposition(
                .postpone(.retried, "TooManyRequests", .behindDevice, spendsAttempt: true), app: .inconclusive,
                device: .throttle(7500))),

        // Lost connections.
        Row("A notification lost with others is sent again apart", lost, resentLost(in: .withFew)),
        Row("A notification lost with a few others is sent again alone", lost, resentLost(in: .alone)) {
            $0.isolation = .withFew
        },
        Row(
            "A notification on a stale connection is sent again", .resendUncertain(reason: "ConnectionLost"),
            resentLost(in: .shared)),
        Row(
            "A lost notification of a paused app is retried later", .resendUncertain(reason: "ConnectionLost"),
            retried("ConnectionLost", 500, spends: false, isUncertain: true)
        ) { $0.pause = "Forbidden" },
        Row(
            "A lost notification is not resent by a lane that ends", lost,
            retried("ConnectionLost", 500, spends: false, isUncertain: true)
        ) { $0.isWorking = false },
        Row(
            "A lost job that must not be sent twice is dropped", lost,
            Disposition(.end(.dropped, "ConnectionLost"), app: .inconclusive), members: #","on_uncertain":"drop""#),

        // Never processed.
        Row("A refused stream is sent again at once", .resend(after: .refusedStream), resent("RefusedStream")),
        Row(
            "From the second refusal on, a stream waits", .resend(after: .refusedStream),
            Disposition(.defer("RefusedStream", .milliseconds(750)), app: .inconclusive)
        ) { $0.resends = 1 },
        Row(
            "A notification discarded by the gateway does not count", .resend(after: .discarded),
            resent("Discarded", counts: false)
        ) { $0.resends = 200 },
        Row(
            "After a day a refused stream spends attempts", .resend(after: .refusedStream),
            retried("RefusedStream", 500)
        ) { ($0.resends, $0.firstSeen) = (1, now - 25 * 3_600_000) },

        // Connections, keys and the app.
        Row(
            "A refused connection is replaced", .retireConnection(reason: "TooManyProviderTokenUpdates"),
            resent("TooManyProviderTokenUpdates")
        ) { $0.finding = .connectionRetired },
        Row(
            "A second refused connection pauses the app", .retireConnection(reason: "TooManyProviderTokenUpdates"),
            pause("TooManyProviderTokenUpdates")
        ) { $0.finding = .connectionRefusedAgain },
        Row(
            "A second refused connection with another key is sent with it",
            .retireConnection(reason: "UnrelatedKeyIdInToken"),
            resent("UnrelatedKeyIdInToken", app: .changeKey("UnrelatedKeyIdInToken"))
        ) { ($0.finding, $0.hasOtherKey) = (.connectionRefusedAgain, true) },
        Row(
            "A token that can't be renewed pauses the app and names the clock",
            .retireConnection(reason: "ExpiredProviderToken"),
            pause(Reason(Reason("ExpiredProviderToken").code, detail: "is this machine's clock right?"))),
        Row("A refused key pauses the app", .pauseApp(reason: "InvalidProviderToken"), pause("InvalidProviderToken")),
        Row(
            "A refused key is replaced by the next", .pauseApp(reason: "InvalidProviderToken"),
            resent("InvalidProviderToken", app: .changeKey("InvalidProviderToken"))
        ) { $0.hasOtherKey = true },
        Row(
            "Another key does not help against a wrong topic", .pauseApp(reason: "TopicDisallowed"),
            pause("TopicDisallowed")
        ) { $0.hasOtherKey = true },
        Row(
            "A gateway that drops each connection pauses the app, and its notification may be sent twice",
            .pauseApp(reason: Reason(.request(.hungUp))), pause(Reason(.request(.hungUp)), isUncertain: true)),
        Row(
            "The first Forbidden may be the job's own fault", .forbidden(reason: "Forbidden"),
            retried("Forbidden", 120_000)
        ) { $0.finding = .forbidden(isOfApp: false) },
        Row(
            "A third Forbidden of one job makes a dead letter", .forbidden(reason: "Forbidden"), dead("Forbidden"),
            attempt: 3
        ) { $0.finding = .forbidden(isOfApp: false) },
        Row("Forbidden for two jobs pauses the app", .forbidden(reason: "Forbidden"), pause("Forbidden")) {
            $0.finding = .forbidden(isOfApp: true)
        },

        // Push types.
        Row(
            "A push type is refused while the plain topic is accepted", typeRefused,
            Disposition(.end(.dead, "TopicDisallowed"))
        ) { $0.finding = .pushType(.pushType) },
        Row(
            "A refused push type waits for the plain topic", typeRefused,
            Disposition(.defer("TopicDisallowed", .milliseconds(10_000)))
        ) { $0.finding = .pushType(.unknown) },
        Row("A refused push type pauses an app that sends nothing else", typeRefused, pause("TopicDisallowed")) {
            $0.finding = .pushType(.app)
        },
        Row(
            "A probe with a refused push type shows nothing about another fault", typeRefused,
            Disposition(.defer("TopicDisallowed", .likePausedApp), app: .inconclusive)
        ) { ($0.pause, $0.isProbe) = ("InvalidProviderToken", true) },

        // The rest.
        Row(
            "Broadcasts wait until they are enabled", .deferred(reason: "FeatureNotEnabled"),
            Disposition(.defer("FeatureNotEnabled", .milliseconds(60_000)), app: .inconclusive)),
        Row("An unknown reason is tried minutes later", .unknown(reason: "NewReason"), retried("NewReason", 120_000)),
        Row("An unknown reason is tried three times", .unknown(reason: "NewReason"), dead("NewReason"), attempt: 3),
        Row("A documented refusal makes a dead letter", .dead(reason: "PayloadTooLarge"), dead("PayloadTooLarge")),
    ]

    private static let mostlyBad = Reason(
        Reason("BadDeviceToken").code,
        detail: "for most tokens; are the environment and the topic right? No token was marked invalid")

    @Test("It follows the design's table.", arguments: rows)
    func table(row: Row) throws {
        let facts = try Self.facts(attempt: row.attempt, members: row.members, row.change)
        #expect(Disposition(row.verdict, facts) == row.expected)
    }

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
