import PushQueue

/// A problem that needs an operator.
package struct Problem: Encodable, Sendable {
    package enum Kind: String, CaseIterable, Encodable, Sendable {
        case redisTooOld = "redis_too_old"
        case redisCluster = "redis_is_cluster"
        case redisReplica = "redis_is_replica"
        case redisFull = "redis_full"
        case redisNearlyFull = "redis_nearly_full"
        case redisRefusesWrites = "redis_refuses_writes"
        case redisEvicts = "redis_evicts"
        case queueUnreadable = "queue_unreadable"
        case sharedUnreadable = "shared_unreadable"
        case serverUnreachable = "server_unreachable"
        case resharding = "invalid_tokens_resharding"
        case wrongKey = "wrong_key"
        case largeKey = "large_key"
        case noWorker = "no_worker"
        case workerGone = "worker_gone"
        case workerNotReady = "worker_not_ready"
        case workerSilent = "worker_silent"
        case failoversUnwatched = "failovers_unwatched"
        case appPaused = "app_paused"
        case appUnconnected = "app_unconnected"
        case appUnanswered = "app_unanswered"
        case appServerErrors = "app_server_errors"
        case differentApps = "different_apps"
        case tooOld = "too_old"
        case deadLetters = "dead_letters"
        case campaignStopped = "campaign_stopped"

        /// True if jobs are not sent, or may be lost. Otherwise the problem is a warning.
        package var isCritical: Bool {
            switch self {
            case .redisNearlyFull, .redisEvicts, .workerGone, .failoversUnwatched, .differentApps, .tooOld,
                .deadLetters, .largeKey, .campaignStopped:
                false
            case .redisTooOld, .redisCluster, .redisReplica, .redisFull, .redisRefusesWrites, .queueUnreadable,
                .sharedUnreadable, .serverUnreachable, .resharding, .wrongKey, .noWorker, .workerNotReady,
                .workerSilent,
                .appPaused,
                .appUnconnected, .appUnanswered, .appServerErrors:
                true
            }
        }
    }

    package let kind: Kind
    /// The thing that has the problem.
    package let object: Object
    /// The problem.
    package let message: String
    /// The time at which it began, in milliseconds since 1970, if known.
    package let since: Int64?
    /// The first thing to do, as a clause; empty if the remedies are all.
    package let hint: String
    /// The things that help, in the order in which they make sense.
    package let remedies: [Remedy]
    /// The fleet that has the problem, for commands.
    package var access = FleetAccess()

    package init(
        _ kind: Kind, _ object: Object, _ message: String, since: Int64? = nil, hint: String = "",
        _ remedies: [Remedy] = []
    ) {
        (self.kind, self.object, self.message) = (kind, object, message)
        (self.since, self.hint, self.remedies) = (since, hint, remedies)
    }

    /// The name of the object.
    package var subject: String { object.name }

    /// The action that solves the problem, in words.
    package var advice: String {
        ([hint] + remedies.compactMap { $0.words(access) }).filter { !$0.isEmpty }.joined(separator: "; ")
    }

    private enum CodingKeys: String, CodingKey { case kind, subject, message, since, advice, commands }

    package func encode(to encoder: any Encoder) throws {
        var members = encoder.container(keyedBy: CodingKeys.self)
        try members.encode(kind, forKey: .kind)
        try members.encode(subject, forKey: .subject)
        try members.encode(message, forKey: .message)
        try members.encodeIfPresent(since, forKey: .since)
        try members.encode(advice, forKey: .advice)
        try members.encode(remedies.map { $0.command(access) }, forKey: .commands)
    }

    /// A thing that has problems.
    package enum Object: Sendable, Equatable {
        case server(String)
        case queue(String)
        case app(String)
        case worker(String)
        case campaign(String)
        case key(String)
        /// The state that all queues share, by its prefix.
        case shared(String)

        package var name: String {
            switch self {
            case .server(let name), .queue(let name), .app(let name), .worker(let name), .campaign(let name),
                .key(let name), .shared(let name):
                name
            }
        }
    }
}

/// The limits beyond which something needs attention.
package struct ProblemLimits: Sendable {
    /// The maximum age of the oldest job, in ms; `nil` for any age.
    package var age: Int64?
    /// The maximum number of a queue's dead letters; `nil` for any number.
    package var dead: Int?
    /// The maximum share of dead letters in the day's outcomes of a queue; `nil` for ``defaultDeadShare``, and at
    /// least ``leastDead`` of them.
    package var deadShare: Double?

    package static let defaultDeadShare = 0.01
    package static let leastDead = 10

    /// Makes limits that apply only to dead letters.
    package init() {}
}
