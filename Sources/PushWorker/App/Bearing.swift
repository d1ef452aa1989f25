import APNS

/// The scopes that an answer proves good, and those that it may concern: the table of docs/outcomes.md.
///
/// An answer counts for a scope only if it proves it good or may concern it. It need not be a 200 to prove something: APNs
/// refuses a token only after it has accepted the credential.
struct Bearing: Equatable {
    var proves: ScopeSet
    var concerns: ScopeSet

    /// An answer from which nothing follows for any scope.
    static let nothing = Bearing(proves: [], concerns: [])
    /// A server error, or the lack of an answer. The credential and the configuration are not asked before.
    private static let ofServer = Bearing(proves: [], concerns: [.job, .group, .endpoint])
    /// A refusal of one notification or token by APNs itself.
    private static let ofNotification = Bearing(proves: [.credential, .endpoint], concerns: [])
    /// A topic that is the job's, or follows from its push type.
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
        // The first is the connection's; see `AppSender.refusedConnection`.
        case .retireConnection: self.init(proves: .endpoint, concerns: [])
        case .misconfigured(let reason) where reason.isNoAnswer: self.init(proves: [], concerns: [.app, .credential])
        case .misconfigured: self.init(proves: .endpoint, concerns: .app)
        case .pushTypeRefused: self = .ofTopic
        case .deferred: self.init(proves: .endpoint, concerns: [])
        case .unknown: self.init(proves: .endpoint, concerns: [.job, .group, .app])
        // Another server may have answered.
        case .unexplained: self.init(proves: [], concerns: [.job, .group, .app, .endpoint])
        case .serverError: self = .ofServer
        case .retry(let reason, _, _):
            // A refusal with a reason that this version does not know.
            if case .other = reason.code {
                self.init(proves: .endpoint, concerns: [.job, .group, .app])
            } else {
                self = .ofServer
            }
        // A connection that many requests lost concerns none of them.
        case .resend, .resendApart, .resendUncertain: self = .nothing
        case .dead(let reason):
            switch reason.code {
            case .apns(.topicDisallowed), .apns(.topicMismatch), .apns(.badTopic): self = .ofTopic
            // Whatever server answered: the notification is too large.
            case .http: self = .nothing
            default: self = .ofNotification
            }
        }
    }
}
