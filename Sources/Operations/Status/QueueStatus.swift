import PushQueue

package struct QueueStatus: Sendable {
    package var name: String
    package var waiting = 0, due = 0, later = 0, retrying = 0, claimed = 0
    /// The scheduled and deferred jobs of ``due`` and ``later``, unless they are too many to count.
    package var scheduled, deferred: Int?
    package var dead = 0, deadBytes = 0, deadSampled = 0, cancelled = 0
    package var oldestAgeMs: Int64?
    package var paused: PauseRecord?
    /// The number of living lanes.
    package var workers = 0
    package var deliveredRate: Double?
    package var today: [String: Int] = [:]
    package var deadReasons: [String: Int] = [:]
    package var fair: QueueShares?
    /// The campaigns that their guards have paused, each with the reason and the time of the pause (milliseconds since 1970).
    package var stoppedCampaigns: [String: (reason: String, since: Int64?)] = [:]
    package var damagedCommands: [String] = []
    package var differentApps: [WorkersWithApps] = []
    /// The number of jobs that could be in flight by now.
    package var ready: Int { waiting + due }
    package var error: String?
    package var unreachable = false
}

extension QueueStatus: Shown {
    package static let columns = Columns<Self>(
        "Queue", "A queue.",
        [
            .init("name", "Name.", as: .queue, title: "Queue", in: .list, \.name),
            .text("State", in: .list, \.paused?.withOrigin),
            .init("waiting", "Jobs that no lane has claimed.", as: .count, in: .list, \.waiting),
            .text("Delivered today", as: .count, in: .wide) { $0.today[Outcome.delivered.rawValue] ?? 0 },
            .text("Dead letters", as: .count, in: .list, \.dead),
            .init("due", "Retrying, scheduled and deferred jobs whose time has come.", as: .count, \.due),
            .init("later", "Retrying, scheduled and deferred jobs whose time has not come.", as: .count, \.later),
            .init(
                "retrying", "Jobs of `due` and `later` that failed and are tried again.", as: .count, in: .widest,
                \.retrying),
            .init(
                "scheduled", "Jobs with a `send_at`, due or not, unless too many to count.", as: .count, in: .widest,
                \.scheduled),
            .init(
                "deferred", "Deferred jobs, due or not, unless too many to count.", as: .count, in: .widest,
                \.deferred),
            .init("claimed", "Jobs that are claimed and not settled.", as: .count, in: .wide, \.claimed),
            .init("dead", "Dead letters.", as: .count, \.dead),
            .init("dead_bytes", "Sum of the lengths of the dead letters.", as: .bytes, \.deadBytes),
            .init("cancelled", "Cancelled jobs that are kept.", as: .count, \.cancelled),
            .init(
                "oldest_age_ms", "Age of the oldest waiting or due job, if known.", as: .duration, title: "Oldest",
                in: .list,
                under: "Waiting",
                \.oldestAgeMs),
            .init("paused", "Pause by an operator.", \.paused),
            .init("workers", "Living lanes.", as: .count, title: "Lanes", in: .wide, \.workers),
            .init(
                "delivered_rate", "Rate of deliveries, after two readings (`--watch`).", as: .rate, title: "Rate",
                in: .wide, under: "Delivered today", \.deliveredRate),
            .init("today", "Today's notifications (UTC) by outcome, and by reason as in `dead:BadPayload`.", \.today),
            .init("dead_reasons", "Newest dead letters by reason.", \.deadReasons),
            .init("dead_sampled", "Number of dead letters that `dead_reasons` counts.", as: .count, \.deadSampled),
            .init("fair", "Waiting jobs by their member `fair`, if the queue sorts its jobs.", \.fair),
            .init("stopped_campaigns", "Campaigns that their guards have paused, with the reasons.") {
                $0.stoppedCampaigns.mapValues(\.reason)
            },
            .init("damaged_commands", "Unreadable commands about jobs, such as `campaign:spring`.", \.damagedCommands),
            .init("different_apps", "Workers by their apps, if the workers have different apps.", \.differentApps),
            .init("error", "Error because of which the queue could not be read.", \.error),
            .init("unreachable", "True if the queue's server did not answer.", \.unreachable),
        ])
}

/// Workers of a queue that have the same apps with the same topics.
package struct WorkersWithApps: Sendable, Equatable, Shown {
    package var workers: [String]
    package var apps: [String]

    package static let columns = Columns<Self>(
        "WorkersWithApps", "Workers of a queue that have the same apps with the same topics.",
        [.init("workers", "Names of the workers.", \.workers), .init("apps", "Names of the apps.", \.apps)])

    /// Returns a queue's running workers by their apps; none if all of them have the same apps.
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
