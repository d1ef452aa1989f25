import PrintableText
import PushQueue
import Redis

/// The result of an operator's change of a campaign in one queue. Its members are those of the JSON.
package struct CampaignChange: Encodable, Sendable {
    package var queue: String
    package var campaign: String
    /// The state now.
    package var state: String
    /// The state before.
    package var before: String
    package var limitPerSecond: Int?
    /// Notifications that ended before the change, by outcome.
    package var outcomes: [String: Int]
    /// Notifications that were submitted and had no answer when the workers received a cancellation.
    package var inFlight: Int?
    /// Lanes with jobs that have not confirmed the change.
    package var unconfirmed: Int

    /// Changes a campaign in each queue, and waits for up to ten seconds until workers have confirmed it.
    /// - Throws: `RedisError`.
    package static func apply(
        _ change: JobCommands.Change, to campaign: String, by: String, reason: String, in queues: [QueueKeys],
        _ fleet: Fleet
    ) async throws -> [CampaignChange] {
        var versions: [(QueueKeys, RedisClient, String, JobCommands.Command?)] = []
        let target = JobCommands.Target.campaign(campaign)
        for keys in queues {
            let client = try await fleet.client(for: keys.jobs)
            let (version, previous) = try await JobCommands.change(
                change, of: [target], by: by, reason: reason, client, keys)
            versions.append((keys, client, version, previous.first ?? nil))
        }
        var changes: [CampaignChange] = []
        for (keys, client, version, previous) in versions {
            let confirmation = try await JobCommands.waitForConfirmation(of: version, client, keys)
            let counts = try await CampaignCounts.read(campaign, client, keys)
            let now = try await JobCommands.read(client, keys).commands[target]
            changes.append(
                CampaignChange(
                    queue: keys.queue, campaign: campaign.printable,
                    state: (now?.state ?? .running).rawValue, before: (previous?.state ?? .running).rawValue,
                    limitPerSecond: now?.perSecond,
                    outcomes: Dictionary(uniqueKeysWithValues: Outcome.allCases.map { ($0.rawValue, counts[$0]) }),
                    inFlight: confirmation.cancelledInFlight, unconfirmed: confirmation.unconfirmed))
        }
        return changes
    }

    /// Makes jobs due that were deferred because of a pause or limit that a change has ended: their due times depend on
    /// the former state.
    /// - Parameter changes: the result of the change in each queue.
    /// - Throws: `RedisError`, or `QueueConnection.Failure`.
    package static func makeDue(
        after change: JobCommands.Change, _ changes: [CampaignChange], of campaign: String, in queues: [QueueKeys],
        _ fleet: Fleet
    ) async throws {
        var filter = JobFilter()
        filter.campaigns = [campaign]
        filter.states = [.deferred]
        var queues = queues
        switch change {
        case .resume:
            filter.reasons = ["CampaignPaused"]
            let resumed = Set(changes.filter { $0.before == "paused" }.map(\.queue))
            queues = queues.filter { resumed.contains($0.queue) }
        case .limit: filter.reasons = ["CampaignLimited"]
        case .cancel, .pause, .uncancel: return
        }
        for keys in queues {
            var changes = JobChanges(QueueJobs(try await fleet.client(for: keys.jobs), keys), .run, filter)
            try await changes.run()
        }
    }
}

extension JobCommands {
    /// The state of a change, as far as workers have reported it.
    package struct Confirmation {
        /// Notifications that were in flight when their cancellation arrived.
        package var cancelledInFlight = 0
        /// Lanes that hold jobs and have not reported the change.
        package var unconfirmed = 0
    }

    /// Waits until all lanes with jobs have reported a version of the commands. Other lanes read it with their next
    /// claim.
    /// - Throws: `RedisError`.
    package static func waitForConfirmation(
        of version: String, _ client: RedisClient, _ keys: QueueKeys
    ) async throws -> Confirmation {
        let number = Int(version) ?? 0
        let deadline = ContinuousClock.now + .seconds(10)
        while true {
            var confirmation = Confirmation()
            for worker in try await QueueOverview.read(client, keys).workers where worker.leaseLeft >= 0 {
                if let report = worker.report, Int(report.commands) ?? 0 >= number {
                    confirmation.cancelledInFlight += report.commands == version ? report.cancelledInFlight : 0
                } else if worker.claims > 0 {
                    confirmation.unconfirmed += 1
                }
            }
            if confirmation.unconfirmed == 0 || ContinuousClock.now >= deadline { return confirmation }
            try await Task.sleep(for: .milliseconds(50))
        }
    }
}
