import APNS
import NIOCore
import PushJob
import PushQueue
import Testing

@testable import PushWorker

/// The table of the consequences of each answer of APNs, without a lane.
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
    private static let refusedKey = Verdict.refused(reason: "InvalidProviderToken")
    private static let typeRefused = Verdict.pushTypeRefused(reason: "TopicDisallowed")
    private static let lost = Verdict.resendApart(reason: "ConnectionLost")

    private static let gatewayError = Verdict.retry(reason: "ProcessingError", retryAfter: nil, isUncertain: false)
    private static let heldReason = Reason(
        Reason("BadDeviceToken").code,
        detail: "APNs gives this reason for most tokens of the campaign or topic, and accepts other tokens")

    private static let marked = Disposition(.markInvalid("BadDeviceToken", since: nil))

    private static func dead(_ reason: Reason, cause: Reason? = nil) -> Disposition {
        Disposition(.end(.dead, reason, cause: cause))
    }

    private static func retried(
        _ reason: Reason, _ delay: Int64, _ fault: Settlement.AttemptRule.Fault = .own, maximum: Int = 10,
        expires: Bool = false, isUncertain: Bool = false
    ) -> Disposition {
        let rule = Settlement.AttemptRule.judged(fault, maximum: maximum, expires: expires)
        return Disposition(.postpone(.retried, reason, .milliseconds(delay), rule), isUncertain: isUncertain)
    }

    private static func resent(
        _ reason: Reason, in isolation: Isolation? = nil, counts: Bool = true, changesKey: Reason? = nil,
        isUncertain: Bool = false
    ) -> Disposition {
        Disposition(
            .resend(reason, isolation: isolation, counts: counts), changesKey: changesKey, device: .keep,
            isUncertain: isUncertain)
    }

    private static func resentLost(in isolation: Isolation) -> Disposition {
        resent("ConnectionLost", in: isolation, counts: false, isUncertain: true)
    }

    static let rows: [Row] = [
        Row("A delivery ends it", .delivered, Disposition(.end(.delivered, nil))),
        Row(
            "A 410 marks the token with APNs' time", .tokenInvalid(reason: "Unregistered", since: 5),
            Disposition(.markInvalid("Unregistered", since: 5))),

        // Suspicions.
        Row("A bad token is marked while APNs accepts others", suspect, marked) { $0.finding = .badToken(.believed) },
        Row(
            "A held token is tried again soon, because a list may begin with bad ones", suspect,
            Disposition(.postpone(.retried, "BadDeviceToken", .milliseconds(7500), .always))
        ) { $0.finding = .badToken(.held) },
        Row(
            "A token that is held again is tried ten minutes later", suspect,
            Disposition(.postpone(.retried, "BadDeviceToken", .milliseconds(630_000), .always)), attempt: 2
        ) { $0.finding = .badToken(.held) },
        Row("A token that is held three times is a dead letter, and not marked", suspect, dead(heldReason), attempt: 3)
        {
            $0.finding = .badToken(.held)
        },
        Row(
            "If nothing is accepted, a bad token is tried again much later", suspect,
            retried("BadDeviceToken", 120_000),
            attempt: 9
        ) { $0.finding = .badToken(.configuration) },

        // Retries. AttemptTests show when Redis lets them spend an attempt.
        Row(
            "No answer is hardly the notification's own fault", noAnswer,
            retried("NoAnswer", 750, .server, isUncertain: true)),
        Row("A gateway's error may be the notification's own fault", gatewayError, retried("ProcessingError", 500)),
        Row(
            "Deliveries of others show nothing while this lane's own way to APNs may be bad", gatewayError,
            retried("ProcessingError", 500, .server)
        ) { $0.isWayGood = false },
        Row("Later attempts are further apart", gatewayError, retried("ProcessingError", 256_000), attempt: 10),
        Row(
            "A job's own number of attempts outranks the worker's", gatewayError,
            retried("ProcessingError", 500, maximum: 1), members: #","max_attempts":1"#),
        Row(
            "A job that must not be sent twice is dropped", noAnswer, Disposition(.end(.dropped, "NoAnswer")),
            members: #","on_uncertain":"drop""#),
        Row(
            "A 503 is hardly the notification's own fault", unavailable,
            retried("ServiceUnavailable", 90_000, .server, maximum: 9), attempt: 9
        ) { $0.policy.maximumAttempts = 9 },
        Row(
            "A notification that expires says so", unavailable,
            retried("ServiceUnavailable", 90_000, .server, expires: true), attempt: 2
        ) { $0.hasEnd = true },
        Row(
            "A 429 delays the device", .throttled(reason: "TooManyRequests", retryAfter: 7),
            Disposition(
                .postpone(
                    .retried, "TooManyRequests", .behindDevice, .judged(.own, maximum: 10, expires: false)),
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
            "A lost notification of a slow endpoint waits", .resendUncertain(reason: "ConnectionLost"),
            Disposition(.defer("ConnectionLost", .milliseconds(500)), isUncertain: true)
        ) { $0.isEndpointSlow = true },
        Row(
            "A lost notification is not resent by a lane that ends", lost,
            Disposition(.defer("ConnectionLost", .milliseconds(500)), isUncertain: true)
        ) { $0.isWorking = false },
        Row(
            "A lost job that must not be sent twice is dropped", lost,
            Disposition(.end(.dropped, "ConnectionLost")), members: #","on_uncertain":"drop""#),

        // Notifications that APNs did not process.
        Row("A refused stream is sent again at once", .resend(after: .refusedStream), resent("RefusedStream")),
        Row(
            "From the second refusal on, a stream waits", .resend(after: .refusedStream),
            Disposition(.defer("RefusedStream", .milliseconds(750)))
        ) { $0.resends = 1 },
        Row(
            "A notification discarded by the gateway does not count", .resend(after: .discarded),
            resent("Discarded", counts: false)
        ) { $0.resends = 200 },
        Row(
            "After a day a refused stream may spend attempts", .resend(after: .refusedStream),
            retried("RefusedStream", 500)
        ) { ($0.resends, $0.firstSeen) = (1, now - 25 * 3_600_000) },

        // Connections, keys and the app.
        Row(
            "A refused connection is replaced", .retireConnection(reason: "TooManyProviderTokenUpdates"),
            resent("TooManyProviderTokenUpdates")
        ) { $0.finding = .connectionRetired },
        Row(
            "A second refused connection is a refused credential",
            .retireConnection(reason: "TooManyProviderTokenUpdates"),
            retried("TooManyProviderTokenUpdates", 500)),
        Row(
            "A refused credential is tried again at once on a connection of its own", refusedKey,
            resent("InvalidProviderToken", in: .alone)
        ) { ($0.finding, $0.hasOtherKey) = (.secondTry, true) },
        Row("A credential that is refused again waits by itself", refusedKey, retried("InvalidProviderToken", 500)),
        Row(
            "A refused key is replaced by the next", refusedKey,
            resent("InvalidProviderToken", changesKey: "InvalidProviderToken")
        ) { $0.hasOtherKey = true },
        Row(
            "Another key does not help against what is forbidden to a certificate", .refused(reason: "BadCertificate"),
            retried("BadCertificate", 500)
        ) { $0.hasOtherKey = true },
        Row(
            "A wrong topic of the configuration is hardly the notification's own fault",
            .misconfigured(reason: "TopicDisallowed"), retried("TopicDisallowed", 750, .server)),
        Row(
            "A notification at which a gateway hangs up may be sent twice",
            .misconfigured(reason: Reason(.request(.hungUp))),
            retried(Reason(.request(.hungUp)), 750, .server, isUncertain: true)),

        // Push types.
        Row(
            "A push type is refused while the plain topic is accepted", typeRefused,
            Disposition(.end(.dead, "TopicDisallowed"))
        ) { $0.finding = .pushType(isPlainAccepted: true) },
        Row(
            "A refused push type waits for the plain topic", typeRefused, retried("TopicDisallowed", 750, .server)
        ) { $0.finding = .pushType(isPlainAccepted: false) },

        // Other answers.
        Row(
            "Broadcasts wait until they are enabled", .deferred(reason: "FeatureNotEnabled"),
            Disposition(.defer("FeatureNotEnabled", .milliseconds(60_000)))),
        Row(
            "An unknown reason is tried minutes later, three times if it is the notification's fault",
            .unknown(reason: "NewReason"), retried("NewReason", 120_000, maximum: 3)),
        Row(
            "An unknown reason is tried sooner, by another lane, if this lane's own way to APNs may be bad",
            .unknown(reason: "NewReason"), retried("NewReason", 500, .server, maximum: 3)
        ) { $0.isWayGood = false },
        Row(
            "An answer without a reason as well", .unexplained(reason: .notAPNs(status: 400)),
            retried(.notAPNs(status: 400), 120_000, maximum: 3), attempt: 3),
        Row("A documented refusal makes a dead letter", .dead(reason: "PayloadTooLarge"), dead("PayloadTooLarge")),
    ]

    @Test("It follows the design's table.", arguments: rows)
    func table(row: Row) throws {
        let facts = try Self.facts(attempt: row.attempt, members: row.members, row.change)
        #expect(Disposition(row.verdict, facts) == row.expected)
    }

    @Test("Nothing is lost: each verdict ends, postpones or resends in every state.")
    func total() throws {
        let verdicts = Self.rows.map(\.verdict)
        let findings: [Disposition.Finding] =
            [.none, .connectionRetired, .secondTry]
            + [TokenTrust.Judgement.believed, .held, .configuration].map { .badToken($0) }
            + [true, false].map { .pushType(isPlainAccepted: $0) }
        for verdict in verdicts {
            for finding in findings {
                for bits in 0..<32 {
                    let facts = try Self.facts(attempt: bits & 1 == 0 ? 1 : 10) {
                        $0.finding = finding
                        $0.hasEnd = bits & 2 == 0
                        $0.hasOtherKey = bits & 4 != 0
                        $0.isEndpointSlow = bits & 8 != 0
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
                    case .resend: #expect(disposition.device == .keep)
                    case .markInvalid: break
                    }
                }
            }
        }
    }
}
