/// The kinds of jobs that are pushed. The kind of a job depends only on the seed and its number.
enum Kind: CaseIterable {
    // Jobs that are delivered in the end, whatever faults occur.
    case plain, withoutID, background, voip, liveActivity, collapsed, ownAPNsID, later
    case refusedOnce, throttledTwice, failedOnce, deferred
    case answerLost, unansweredOnce, droppedOnce, takenBack
    case fanOut, fullFanOut, bigFanOut, wideFanOut, hugeFanOut
    // Jobs of a campaign, which has one limit in all queues together. They are only among the first jobs.
    case limited, limitedFanOut
    // Jobs with one notification and many additional bytes.
    case bytes70k, bytes1M, bytes7M
    // Jobs that are pushed twice with the same id.
    case unique
    // A valid wrapper from a producer, in the form of the worker's.
    case wrapped
    // Jobs of an app that only some workers have. `newApp` contains the app's name, `newTopic` its topic.
    case newApp, newTopic
    // A slow device. Each job for many devices has one.
    case slow
    // Jobs that can expire before they are delivered.
    case shortLived
    // Jobs that are never delivered.
    case expired, expiring, unanswered
    case gone, badToken, foreignToken, refused
    case exhausted
    // The notification is never answered, until it expires.
    case unansweredUntilEnd
    // The notification cuts each connection that it is sent on.
    case cutter
    case truncated, noJSON, notAnObject, missingPayload, malformedToken, tooLarge
    // Poison: the answers to these jobs could seem to concern more than these jobs; see ``poison``.
    case refusedKey, unknownReason, notAPNs, goneWithoutReason
    // A job of the campaign whose delays are measured.
    case timed
    // Jobs in a wrapper with a member that no worker writes.
    case hostileWrapper, hostileTokens

    /// The number of jobs of this kind in 100,000. Three in four notifications are of jobs for many devices.
    var weight: Int {
        switch self {
        case .plain: 47_900
        case .withoutID: 15_000
        case .background, .voip, .liveActivity, .collapsed, .ownAPNsID: 2000
        case .later: 3000
        case .refusedOnce, .throttledTwice: 2500
        case .failedOnce: 1500
        case .deferred: 50
        case .answerLost: 1500
        case .unansweredOnce: 400
        case .droppedOnce, .takenBack: 30
        case .fanOut: 400
        case .fullFanOut: 40
        case .bigFanOut: 30
        case .wideFanOut: 15
        case .hugeFanOut: 4
        case .limited: 5000
        case .limitedFanOut: 100
        case .bytes70k: 20
        case .bytes1M: 3
        case .bytes7M: 1
        case .unique, .wrapped: 500
        case .shortLived: 2000
        case .expired, .expiring: 1000
        case .unanswered: 200
        case .gone: 1500
        case .badToken, .foreignToken: 500
        case .refused: 400
        case .exhausted: 800
        case .unansweredUntilEnd: 200
        case .cutter: 50
        case .newApp, .newTopic: 500
        case .slow: 20
        case .truncated, .noJSON, .notAnObject, .missingPayload, .malformedToken: 200
        case .tooLarge: 100
        case .hostileWrapper, .hostileTokens: 100
        case .timed: 2000
        // The options set the number of these jobs.
        case .refusedKey, .unknownReason, .notAPNs, .goneWithoutReason: 0
        }
    }

    /// The kinds that have at least one job in each run, however short it is.
    static let always: [Kind] = [
        .fullFanOut, .cutter, .limitedFanOut, .newApp, .bigFanOut, .wideFanOut, .newTopic, .cutter, .bytes70k, .bytes1M,
        .bytes7M,
    ]

    /// The kinds of poison. The option `--poison` sets their share of all jobs.
    static let poison: [Kind] = [
        .refusedKey, .unknownReason, .notAPNs, .goneWithoutReason, .refused, .exhausted, .cutter, .badToken,
    ]

    /// True for a job for many devices, whose notifications are of many kinds.
    var isFanOut: Bool {
        switch self {
        case .fanOut, .fullFanOut, .bigFanOut, .wideFanOut, .hugeFanOut, .limitedFanOut: true
        default: false
        }
    }

    var isOfCampaign: Bool { self == .limited || self == .limitedFanOut }

    /// True for a job that is split, because it has too many devices for one job or for its campaign's limit. The pieces have the original
    /// without its tokens.
    var isSplit: Bool { isFanOut && self != .fanOut && self != .fullFanOut }

    /// The first four digits of the job's tokens, for the simulator's rules.
    var prefix: String {
        switch self {
        // Jobs with many bytes fail once, so that a worker wraps them.
        case .refusedOnce, .bytes70k, .bytes1M, .bytes7M: "0503"
        case .throttledTwice: "0429"
        case .failedOnce: "0500"
        case .deferred: "0420"
        case .answerLost: "0105"
        case .unansweredOnce: "0106"
        case .droppedOnce: "0107"
        case .takenBack: "0108"
        case .expiring: "1503"
        case .unanswered: "1106"
        case .gone: "0410"
        case .badToken: "0400"
        case .foreignToken: "0401"
        case .refused: "0402"
        case .exhausted: "2500"
        case .unansweredUntilEnd: "2106"
        case .cutter: "2107"
        case .refusedKey: "3403"
        case .unknownReason: "3418"
        case .notAPNs: "3404"
        case .goneWithoutReason: "3410"
        case .slow: "0120"
        default: "00fc"
        }
    }

    /// The expected ends of the job's notifications.
    var expectation: Expectation {
        switch self {
        case .shortLived: Expectation([.delivered, .lapsed])
        case .expired, .expiring: Expectation(.lapsed, accepted: false)
        case .unanswered, .unansweredUntilEnd: Expectation(.lapsed)
        case .gone, .badToken, .foreignToken: Expectation(.invalid, accepted: false)
        case .refused: Expectation(.dead, reason: "BadCollapseId", accepted: false)
        case .exhausted, .cutter, .refusedKey, .unknownReason, .notAPNs, .goneWithoutReason:
            Expectation(.dead, reason: "AttemptsExhausted", accepted: false)
        case .truncated, .noJSON: Expectation(.dead, reason: "MalformedJSON", accepted: false)
        case .notAnObject: Expectation(.dead, reason: "NotAnObject", accepted: false)
        case .hostileWrapper: Expectation(.dead, reason: "MissingToken", accepted: false)
        case .hostileTokens: Expectation(.dead, reason: "InvalidMember", accepted: false)
        case .missingPayload: Expectation(.dead, reason: "MissingPayload", accepted: false)
        case .malformedToken: Expectation(.dead, reason: "MalformedToken", accepted: false)
        case .tooLarge: Expectation(.dead, reason: "PayloadTooLarge", accepted: false)
        default: Expectation(.delivered)
        }
    }
}

/// The ways in which a notification can end.
struct Ends: OptionSet {
    let rawValue: UInt8
    static let delivered = Ends(rawValue: 1)
    static let invalid = Ends(rawValue: 2)
    static let dead = Ends(rawValue: 4)
    /// The notification expired, or was dropped because its answer never arrived. Redis only counts such notifications.
    static let lapsed = Ends(rawValue: 8)
}

struct Expectation {
    var ends: Ends
    var reason: String?
    var mayBeAccepted: Bool

    init(_ ends: Ends, reason: String? = nil, accepted: Bool = true) {
        self.ends = ends
        self.reason = reason
        mayBeAccepted = accepted
    }
}

/// The simulator's faults: always for some kinds, and occasionally for all others.
enum SimulatorRules {
    static let all = [
        "prefix=0410,answer=410", "prefix=0400,answer=BadDeviceToken", "prefix=0401,answer=DeviceTokenNotForTopic",
        "prefix=0402,answer=BadCollapseId", "prefix=0503,times=1,answer=503,retry-after=1",
        "prefix=0429,times=2,answer=429",
        "prefix=0500,times=1,answer=500,body=text", "prefix=0420,times=1,answer=FeatureNotEnabled",
        "prefix=0105,times=1,answer=reset,code=INTERNAL_ERROR,accept=true",
        "prefix=0106,times=1,answer=silence,accept=true", "prefix=0107,times=1,answer=drop,accept=true",
        "prefix=0108,times=1,answer=goaway,last-stream=zero,reason=Shutdown",
        "prefix=1503,answer=503", "prefix=1106,answer=silence,accept=true",
        "prefix=2500,answer=429", "prefix=2106,answer=silence,accept=true",
        "prefix=2107,answer=drop,accept=false", "prefix=3403,answer=InvalidProviderToken",
        "prefix=3418,answer=418,reason=QuiteNew", "prefix=3404,answer=404,body=text",
        "prefix=3410,answer=410,body=text",
        "prefix=0120,delay=2200ms±400ms", "rate=0.001,delay=400ms±300ms",
        "rate=0.0002,streams=1,for=300ms",
        "rate=0.003,answer=503", "rate=0.002,answer=429,body=split", "rate=0.001,answer=500,body=empty",
        "rate=0.0002,answer=503,reason=Shutdown",
        "rate=0.002,answer=reset,code=REFUSED_STREAM", "rate=0.0005,answer=reset,code=INTERNAL_ERROR",
        "rate=0.0003,answer=silence",
        "rate=0.0001,answer=goaway,last-stream=exact", "rate=0.0001,answer=goaway,last-stream=accepted,reason=Shutdown",
        "rate=0.00005,answer=drop,accept=false",
        // Connections that are open but do not work.
        "at=connect,after=11,answer=wedge", "at=connect,after=13,answer=no-window",
        "at=connect,after=17,answer=no-settings",
    ]
}
