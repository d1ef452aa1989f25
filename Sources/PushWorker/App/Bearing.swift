import APNS

/// The scopes that an answer proves good, and the scopes that may be at fault for it: the table of docs/outcomes.md.
///
/// Not only a 200 proves something. For example, APNs refuses a token only after it has accepted the credential.
struct Bearing: Equatable {
    var proves: ScopeSet
    var concerns: ScopeSet

    /// An answer that proves nothing about any scope.
    static let nothing = Bearing(proves: [], concerns: [])
    /// A server error, or no answer. Neither proves anything about the credential and the configuration, which APNs checks later.
    private static let ofServer = Bearing(proves: [], concerns: [.job, .group, .endpoint])
    /// A refusal of one notification or token by APNs itself.
    private static let ofNotification = Bearing(proves: [.credential, .endpoint], concerns: [])
    /// The refusal of a topic that the job gives, or that follows from the job's push type.
    private static let ofTopic = Bearing(proves: .endpoint, concerns: [.job, .group])

    init(proves: ScopeSet, concerns: ScopeSet) {
        self.proves = proves
        self.concerns = concerns
    }

    init(_ verdict: Verdict) {
        switch verdict {
        case .delivered: self.init(proves: .all, concerns: [])
        case .tokenInvalid: self.init(proves: [.group, .app, .credential, .endpoint], concerns: [])
        case .tokenSuspect: self.init(proves: [.credential, .endpoint], concerns: [.job, .group, .app])
        case .throttled: self = .ofNotification
        case .refused: self.init(proves: .endpoint, concerns: [.job, .group, .credential])
        // The first refusal concerns the connection; see `AppSender.refusedConnection`.
        case .retireConnection: self.init(proves: .endpoint, concerns: [])
        case .misconfigured(let reason) where reason.isNoAnswer: self.init(proves: [], concerns: [.app, .credential])
        case .misconfigured: self.init(proves: .endpoint, concerns: .app)
        case .pushTypeRefused: self = .ofTopic
        case .deferred: self.init(proves: .endpoint, concerns: [])
        case .unknown: self.init(proves: .endpoint, concerns: [.job, .group, .app])
        // A server other than APNs may have answered.
        case .unexplained: self.init(proves: [], concerns: [.job, .group, .app, .endpoint])
        case .serverError: self = .ofServer
        case .retry(let reason, _, _):
            // A refusal with a reason that this version does not know.
            if case .other = reason.code {
                self.init(proves: .endpoint, concerns: [.job, .group, .app])
            } else {
                self = .ofServer
            }
        // Many requests lost the same connection, so none of their scopes is at fault.
        case .resend, .resendApart, .resendUncertain: self = .nothing
        case .dead(let reason):
            switch reason.code {
            case .apns(.topicDisallowed), .apns(.topicMismatch), .apns(.badTopic): self = .ofTopic
            // The notification is too large, whatever server said so.
            case .http: self = .nothing
            default: self = .ofNotification
            }
        }
    }
}
