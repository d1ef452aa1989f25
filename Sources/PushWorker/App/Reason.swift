import APNS
import LegacyAPNS
import PushJob

/// The reason why a notification or job was not delivered, or why an app was paused: a code for counters and programs, and an optional
/// explanation.
package struct Reason: Sendable, Equatable {
    /// The code, such as `BadDeviceToken`.
    package var code: Code
    /// One sentence for people; `nil` if the code is sufficient.
    package var detail: String?

    package init(_ code: Code, detail: String? = nil) {
        self.code = code
        self.detail = detail
    }

    package init(_ code: Own, detail: String? = nil) { self.init(.own(code), detail: detail) }

    package init(_ reason: APNSReason, detail: String? = nil) { self.init(.apns(reason), detail: detail) }

    package init(_ failure: RequestFailure, detail: String? = nil) { self.init(.request(failure.kind), detail: detail) }

    package init(_ error: JobError) { self.init(.job(error.code), detail: "\(error)") }

    /// The code, by its source.
    package enum Code: Sendable, Hashable {
        /// A reason of APNs' HTTP/2 interface.
        case apns(APNSReason)
        case gateway(GatewayStatus)
        /// A request without an answer.
        case request(RequestFailure.Kind)
        /// An answer without a reason, with its HTTP status.
        case http(Int)
        /// A job that can't be read.
        case job(JobError.Code)
        case own(Own)
        /// A text that this version does not know: from APNs or, in Redis, from another worker or an operator.
        case other(String)

        package init(text: String) { self = Self.known[text] ?? .other(text) }

        /// The code's text, in Redis and in logs.
        package var text: String {
            switch self {
            case .apns(let reason): reason.rawValue
            case .gateway(let status): status.name
            case .request(let kind): kind.rawValue
            case .http(let status): "HTTP\(status)"
            case .job(let code): code.rawValue
            case .own(let code): code.rawValue
            case .other(let text): text
            }
        }

        /// The value of the metrics' `reason` label. Unknown codes come from other programs, and must not create series.
        package var label: String { Self.known[text] == nil ? "other" : text }

        package static var names: Set<String> { Set(known.keys) }

        package static let known: [String: Code] = {
            // Statuses of APNs, and of proxies and load balancers on the way.
            let statuses = [200, 400, 401, 403, 404, 405, 408, 410, 413, 429, 431, 500, 501, 502, 503, 504]
            let codes =
                statuses.map(Code.http) + GatewayStatus.documented.map { .gateway($0.status) }
                + RequestFailure.Kind.allCases.map(Code.request) + JobError.Code.allCases.map(Code.job)
                + Own.allCases.map(Code.own) + APNSReason.allCases.map(Code.apns)
            return Dictionary(codes.map { ($0.text, $0) }) { $1 }
        }()
    }

    /// The worker's own codes. ReasonRules.swift explains each in a sentence.
    package enum Own: String, CaseIterable, Sendable {
        case appPaused = "AppPaused"
        case attemptsExhausted = "AttemptsExhausted"
        case badPayload = "BadPayload"
        case campaignLimited = "CampaignLimited"
        case campaignPaused = "CampaignPaused"
        case cancelled = "Cancelled"
        /// The certificate does not cover the topic of a gateway app, or the topic of a job or its push type.
        case certificateNotForTopic = "CertificateNotForTopic"
        case drained = "Drained"
        case duplicate = "Duplicate"
        case endpointUnavailable = "EndpointUnavailable"
        case expired = "Expired"
        case fairLimited = "FairLimited"
        case jobTooLarge = "JobTooLarge"
        case malformedToken = "MalformedToken"
        case noApp = "NoApp"
        case noAnswer = "NoAnswer"
        case noConnection = "NoConnection"
        case poison = "Poison"
        /// The queue was paused with `--now`.
        case queuePaused = "QueuePaused"
        case rateLimited = "RateLimited"
        case replaced = "Replaced"
        case setAside = "SetAside"
        case suppressed = "Suppressed"
        case throttled = "Throttled"
        case unknownApp = "UnknownApp"
        case unreadableClaim = "UnreadableClaim"
    }

    /// The reason of a job that a newer job has replaced. If APNs may have accepted the older job, it was not really replaced. It then
    /// keeps its failure as the reason, as with `on_uncertain: drop`.
    init(replaced job: Job) {
        let kind = job.envelope.failure(in: job.body)?.reason.flatMap(RequestFailure.Kind.init(rawValue:))
        if let kind, kind.mayBeAccepted { self.init(.request(kind)) } else { self.init(.replaced) }
    }

    /// Returns the reason for an answer that APNs would not give.
    static func notAPNs(status: Int) -> Reason {
        let trait = status == 200 ? "with a body and no apns-id" : "without an APNs reason"
        return Reason(
            .http(status),
            detail:
                "HTTP status \(status) \(trait); the answer may come from another server. Check the endpoint and any proxy"
        )
    }

    /// The code and the detail on one line.
    package var explanation: String { detail.map { "\(code.text) (\($0))" } ?? code.text }

    /// True if there was no answer.
    var isNoAnswer: Bool { if case .request = code { true } else { false } }

    /// True if a connection was lost before the answer.
    var isLostConnection: Bool { code == .request(.connectionLost) }

    /// True for a 410 without a reason, which a proxy may have answered for every token.
    var isGoneWithoutReason: Bool { code == .http(410) }

    /// True if broadcasts must first be enabled for the app.
    var concernsBroadcasts: Bool {
        code == .apns(.featureNotEnabled) || code == .apns(.broadcastFeatureNotEnabled)
    }

    /// True for refusals that may concern only one signing key. `TopicDisallowed` is not one, because all keys get it.
    package var concernsKey: Bool {
        switch code {
        case .apns(.invalidProviderToken), .apns(.forbidden), .apns(.unrelatedKeyIDInToken),
            .apns(.badEnvironmentKeyIDInToken), .apns(.badEnvironmentKeyInToken):
            true
        default: false
        }
    }
}

/// Thrown for a job that can't be sent as it is.
extension Reason: Error {}
