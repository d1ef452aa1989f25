import PushQueue

/// The state of a queue.
package struct QueueStatus: Encodable, Sendable {
    package var name: String
    /// Jobs that no lane has claimed.
    package var waiting = 0
    /// Retried, scheduled and deferred jobs that are due.
    package var due = 0
    /// Retried, scheduled and deferred jobs that are not due yet.
    package var later = 0
    /// The jobs of `due` and `later` that failed and are tried again.
    package var retrying = 0
    /// The others of `due` and `later` by kind, unless they are too many to count.
    package var scheduled, deferred: Int?
    /// Jobs that are claimed and not settled.
    package var claimed = 0
    /// Dead letters, and the sum of their lengths in bytes.
    package var dead = 0
    package var deadBytes = 0
    /// Cancelled jobs that are kept.
    package var cancelled = 0
    /// The age of the oldest job that could be in flight by now, in milliseconds, if known.
    package var oldestAgeMs: Int64?
    package var paused: PauseStatus?
    /// Living lanes.
    package var workers = 0
    /// Notifications delivered per second, if the queue was read twice.
    package var deliveredRate: Double?
    /// Today's counters (UTC): notifications by outcome, and by outcome and reason.
    package var today: [String: Int] = [:]
    /// The newest dead letters by reason, and their number.
    package var deadReasons: [String: Int] = [:]
    package var deadSampled = 0
    /// The waiting jobs by their member `fair`, if the queue sorts its jobs.
    package var fair: QueueShares?
    /// The campaigns that their guards have paused, with the reasons.
    package var stoppedCampaigns: [String: CampaignStop] = [:]
    /// The operators' commands about jobs that can't be read, such as `campaign:spring`.
    package var damagedCommands: [String] = []
    /// The workers by their apps, if they do not all have the same.
    package var differentApps: [WorkersWithApps] = []
    /// Jobs that could be in flight by now.
    package var ready: Int { waiting + due }
    /// The error because of which the queue could not be read.
    package var error: String?
    /// True if its server did not answer.
    package var unreachable = false
}

/// The stop of a campaign by its guard. Its JSON is the reason.
package struct CampaignStop: Encodable, Sendable, Equatable {
    package var reason: String
    /// In milliseconds since 1970.
    package var since: Int64?

    package init(reason: String, since: Int64?) { (self.reason, self.since) = (reason, since) }

    package func encode(to encoder: any Encoder) throws {
        var value = encoder.singleValueContainer()
        try value.encode(reason)
    }
}

/// Workers of a queue that have the same apps with the same topics.
package struct WorkersWithApps: Encodable, Sendable, Equatable {
    package var workers: [String]
    package var apps: [String]

    /// Returns a queue's running workers by their apps; none if they all have the same.
    /// - Parameter reports: the reports of the queue's living lanes.
    package static func groups(of reports: [WorkerReport]) -> [WorkersWithApps] {
        let running = reports.filter { $0.state == .running && $0.configuration != nil }
        let groups = Dictionary(grouping: running) { $0.configuration?.routing }
        guard groups.count > 1 else { return [] }
        return groups.values.map { reports in
            WorkersWithApps(
                workers: Set(reports.map(\.process)).sorted(), apps: Set(reports.flatMap(\.apps).map(\.name)).sorted())
        }.sorted { ($0.apps.count, $0.workers[0]) < ($1.apps.count, $1.workers[0]) }
    }
}
