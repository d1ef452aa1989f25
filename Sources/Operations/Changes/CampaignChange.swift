import PrintableText
import PushJob
import PushQueue
import Redis

/// Pauses, resumes, limits or cancels a campaign, or undoes its cancellation.
package struct CampaignChange: Change {
    private let change: JobCommands.Change
    private let campaign: String
    private let reason: String?
    /// With the end of a cancellation: the dead letters to requeue.
    private let requeue: DeadLettersChange?

    package var action: AuditEntry.Action {
        switch change {
        case .cancel: .cancelCampaign
        case .pause: .pauseCampaign
        case .resume: .resumeCampaign
        case .uncancel: .requeueCampaign
        case .limit: .limitCampaign
        }
    }

    /// - Parameters:
    ///   - change: `limit` and `cancel` take their details from the fields.
    ///   - now: in milliseconds since 1970.
    package init(_ change: JobCommands.Change, _ fields: Fields, now: Int64) throws(FieldMistake) {
        self.campaign = try fields.campaign()
        reason = try fields.reason()
        switch change {
        case .cancel: self.change = .cancel(discard: fields.isSet("discard"))
        case .limit:
            let rate = try fields.rate("per_second")
            guard (rate != nil) != fields.isSet("off") else {
                throw FieldMistake { "pass either \($0("per_second")) or \($0("off"))" }
            }
            self.change = .limit(perSecond: rate)
        case .pause, .resume, .uncancel: self.change = change
        }
        guard change == .uncancel else {
            requeue = nil
            return
        }
        var cancelled = Fields([("campaign", campaign), ("reason", JobAction.cancelledReason)])
        cancelled.append("rate", fields["rate"])
        requeue = try DeadLettersChange(.requeue, cancelled, now: now)
    }

    package func plan(_ desk: Desk, _ progress: @Sendable (Int) -> Void) async throws -> ChangePlan {
        var plan = ChangePlan("campaign \(campaign)")
        plan.detail = reason
        (plan.isCounted, plan.actsOnNothing) = (requeue != nil, true)
        plan.verb = requeue == nil ? "changed" : "requeued"
        let known = try await CampaignStatus.read(campaign, in: desk.queues, desk.fleet)
        var queues = desk.queues.filter { keys in known.contains { $0.queue == keys.queue } }
        if queues.isEmpty {
            queues = try await queuesWithJobs(desk)
            if queues.isEmpty {
                try await desk.checkExistence(
                    ofCampaign: campaign, plan.subject, isInAdvance: change != .resume && change != .uncancel)
                queues = desk.queues
            }
        }
        let place = "campaign \(campaign.printable) in \(queues.inWords)"
        for keys in queues { plan.parts.append(ChangePart(keys.queue)) }
        if let requeue {
            var desk = desk
            desk.queues = queues
            plan.parts = try await requeue.plan(desk, progress).parts
            plan.at = try await desk.fleet.now(of: desk.queues)
            plan.command = "Send the campaign"
            plan.question = "Send \(place) after all, and requeue \(Words.count(plan.count, "job"))?"
        } else if case .cancel(let discard) = change {
            let left = known.compactMap(\.left).reduce(0, +)
            let number =
                known.isEmpty || known.contains { $0.left == nil }
                ? "" : ", of which \(Words.count(left, "notification")) \(left == 1 ? "is" : "are") left"
            plan.command = "Cancel the campaign"
            plan.question =
                discard
                ? "Cancel \(place)\(number), and delete its jobs? This cannot be undone." : "Cancel \(place)\(number)?"
        }
        return plan
    }

    /// Returns the queues that have jobs of the campaign, of which none has ended.
    private func queuesWithJobs(_ desk: Desk) async throws -> [QueueKeys] {
        var filter = JobFilter()
        filter.campaigns = [campaign]
        var queues: [QueueKeys] = []
        for keys in desk.queues {
            var isFound = false
            _ = try await desk.fleet.jobs(of: keys).sweep(filter) { _, jobs, _ in
                isFound = !jobs.isEmpty
                return !isFound
            }
            if isFound { queues.append(keys) }
        }
        return queues
    }

    package func apply(_ plan: ChangePlan, _ desk: Desk, _ control: ChangeControl) async throws -> ChangeResult {
        var desk = desk
        desk.queues = desk.queues.filter { keys in plan.parts.contains { $0.queue == keys.queue } }
        let reports = try await CampaignReport.apply(
            change, to: campaign, by: desk.person, reason: reason ?? "", in: desk.queues, desk.fleet)
        try await CampaignReport.makeDue(after: change, reports, of: campaign, in: desk.queues, desk.fleet)
        var result = ChangeResult(reports.map { $0.part(after: change, desk.fleet.access) })
        result.hasNoEffect = !reports.contains { $0.isChanged(by: change) }
        if let requeue {
            let requeued = try await requeue.apply(plan, desk, control)
            for part in requeued.parts {
                guard let index = result.parts.firstIndex(where: { $0.queue == part.queue }) else { continue }
                result.parts[index].count = part.count
                result.parts[index].error = part.error
                result.parts[index].notes += part.notes
                result.parts[index].sentence += "; " + part.sentence
            }
            result.hasNoEffect = result.hasNoEffect && requeued.hasNoEffect
        } else if result.hasNoEffect, let first = result.parts.first, change != .limit(perSecond: nil) {
            throw ChangeRefusal(.conflict, plan.subject, result.parts.count == 1 ? first.sentence : result.sentence)
        }
        return result
    }
}

/// The result of a change of a campaign in one queue. Its members are those of the JSON.
package struct CampaignReport: Encodable, Sendable {
    package var queue: String
    package var campaign: String
    /// The state now.
    package var state: String
    /// The state before.
    package var before: String
    package var limitPerSecond: Int?
    /// The limit before; not in the JSON.
    package var limitBefore: Int?
    /// Notifications that ended before the change, by outcome.
    package var outcomes: [String: Int]
    /// Notifications that were submitted and had no answer when the workers received a cancellation.
    package var inFlight: Int?
    /// Lanes with jobs that have not confirmed the change.
    package var unconfirmed: Int

    private enum CodingKeys: String, CodingKey {
        case queue, campaign, state, before, limitPerSecond, outcomes, inFlight, unconfirmed
    }

    /// True if the change had an effect.
    fileprivate func isChanged(by change: JobCommands.Change) -> Bool {
        switch change {
        case .resume: before == "paused"
        case .uncancel: before == "cancelled"
        case .pause: state == "paused"
        case .cancel, .limit: true
        }
    }

    fileprivate func part(after change: JobCommands.Change, _ access: FleetAccess) -> ChangePart {
        var part = ChangePart(queue, count: isChanged(by: change) ? 1 : 0)
        part.sentence = "campaign \(campaign) in queue \(queue) \(words(after: change))"
        if state == "cancelled" || before == "cancelled", change == .pause || change == .resume {
            part.sentence += "; to send it after all: \(access.command(["campaign", "requeue"], campaign))"
        }
        if unconfirmed > 0 {
            part.error =
                "\(Words.count(unconfirmed, "lane")) with jobs did not confirm it within 10 seconds; see "
                + "`\(access.command(["status"]))`"
        }
        part.report = self
        return part
    }

    private func words(after change: JobCommands.Change) -> String {
        switch change {
        case .pause: return state == "cancelled" ? "is cancelled" : "is paused"
        case .resume:
            return before == "paused" ? "is resumed" : before == "cancelled" ? "is cancelled" : "was not paused"
        case .uncancel: return before == "cancelled" ? "is sent again" : "was not cancelled"
        case .limit: return limitPerSecond.map { "is limited to \(Words.number($0)) per second" } ?? "has no limit"
        case .cancel(let discard):
            let delivered = outcomes["delivered"] ?? 0
            let flying = inFlight ?? 0
            return
                "is cancelled: \(Words.count(delivered, "notification")) \(delivered == 1 ? "was" : "were") delivered, and "
                + "\(Words.number(flying)) \(flying == 1 ? "was" : "were") in flight"
                + (discard ? "; its other jobs are deleted" : "")
        }
    }

    /// Changes a campaign in each queue, and waits for up to ten seconds until workers have confirmed it.
    /// - Throws: `RedisError`.
    fileprivate static func apply(
        _ change: JobCommands.Change, to campaign: String, by: String, reason: String, in queues: [QueueKeys],
        _ fleet: Fleet
    ) async throws -> [CampaignReport] {
        var versions: [(QueueKeys, RedisClient, String, JobCommands.Command?)] = []
        let target = JobCommands.Target.campaign(campaign)
        for keys in queues {
            let client = try await fleet.client(for: keys.retry)
            let (version, previous) = try await JobCommands.change(
                change, of: [target], by: by, reason: reason, client, keys)
            versions.append((keys, client, version, previous.first ?? nil))
        }
        var reports: [CampaignReport] = []
        for (keys, client, version, previous) in versions {
            let confirmation = try await JobCommands.waitForConfirmation(of: version, client, keys)
            let counts = try await CampaignCounts.read(campaign, client, keys)
            let now = try await JobCommands.read(client, keys).commands[target]
            reports.append(
                CampaignReport(
                    queue: keys.queue, campaign: campaign.printable,
                    state: (now?.state ?? .running).rawValue, before: (previous?.state ?? .running).rawValue,
                    limitPerSecond: now?.perSecond, limitBefore: previous?.perSecond,
                    outcomes: Dictionary(uniqueKeysWithValues: Outcome.allCases.map { ($0.rawValue, counts[$0]) }),
                    inFlight: confirmation.cancelledInFlight, unconfirmed: confirmation.unconfirmed))
        }
        return reports
    }

    /// Makes jobs due that were deferred because of a pause or limit that a change has ended: their due times depend on
    /// the former state.
    /// - Throws: `RedisError`, or `QueueFailure`.
    fileprivate static func makeDue(
        after change: JobCommands.Change, _ reports: [CampaignReport], of campaign: String, in queues: [QueueKeys],
        _ fleet: Fleet
    ) async throws {
        var filter = JobFilter()
        filter.campaigns = [campaign]
        // One that has failed before is still retrying.
        filter.states = [.deferred, .retrying]
        var queues = queues
        switch change {
        case .resume:
            filter.reasons = ["CampaignPaused"]
            let resumed = Set(reports.filter { $0.before == "paused" }.map(\.queue))
            queues = queues.filter { resumed.contains($0.queue) }
        case .limit: filter.reasons = ["CampaignLimited"]
        case .cancel, .pause, .uncancel: return
        }
        for keys in queues {
            var changes = JobChanges(try await fleet.jobs(of: keys), .run, filter)
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
