import PrintableText
import PushJob
import PushQueue
import Redis

/// Pauses, resumes, limits or cancels a campaign, or undoes its cancellation.
///
/// The change first writes one field in every queue, because any queue may get jobs of the campaign later. If a queue can't be written, the
/// other queues are still changed.
package struct CampaignChange: Change {
    private let change: JobCommands.Change
    private let campaign: String
    private let reason: String?
    /// The requeue of the cancelled jobs, if the change ends a cancellation.
    private let requeue: DeadLettersChange?

    package var campaigns: [String] { [campaign] }

    package var action: AuditEntry.Action {
        switch change {
        case .cancel: .cancelCampaign
        case .pause: .pauseCampaign
        case .resume: .resumeCampaign
        case .uncancel: .requeueCampaign
        case .limit: .limitCampaign
        }
    }

    package static func fields(of change: JobCommands.Change) -> [Field] {
        let own: [Field] =
            switch change {
            case .cancel: [Field("discard", .flag)]
            case .limit: [Field("per_second", .number), Field("off", .flag)]
            case .uncancel: [Field("rate", .number)]
            case .pause, .resume: []
            }
        return [Field("campaign", isRequired: true), Field("reason")] + own
    }

    /// - Parameters:
    ///   - change: `limit` and `cancel` take their details from the fields.
    ///   - now: in milliseconds since 1970.
    package init(_ change: JobCommands.Change, _ fields: Fields, now: Int64) throws(FieldMistake) {
        try fields.check(Self.fields(of: change))
        self.campaign = try fields.campaign()
        reason = try fields.reason()
        switch change {
        case .cancel: self.change = .cancel(discard: try fields.isSet("discard"))
        case .limit:
            let rate = try fields.rate("per_second")
            guard (rate != nil) != (try fields.isSet("off")) else {
                throw FieldMistake { "pass either \($0("per_second")) or \($0("off"))" }
            }
            self.change = .limit(perSecond: rate)
        case .pause, .resume, .uncancel: self.change = change
        }
        guard change == .uncancel else {
            requeue = nil
            return
        }
        var cancelled = Fields([("campaign", campaign), ("reason", DeadLetter.cancelledReason)])
        cancelled.append("rate", fields["rate"])
        requeue = try DeadLettersChange(.requeue, cancelled, now: now)
    }

    package func plan(_ desk: Desk, _ progress: @Sendable (Int) -> Void) async throws -> ChangePlan {
        var plan = ChangePlan("campaign \(campaign)", parts: desk.queues.map { ChangePart($0.queue) })
        plan.detail = reason
        (plan.isCounted, plan.actsOnNothing) = (requeue != nil, true)
        plan.verb = requeue == nil ? "changed" : "requeued"
        let place = "campaign \(campaign.shown) in \(desk.queues.briefly)"
        if let requeue {
            plan.parts = try await requeue.plan(desk, progress).parts
            plan.at = try await desk.fleet.now(of: desk.queues)
            plan.command = "Send the campaign"
            plan.question = "Send \(place) after all, and requeue \(Words.count(plan.count, "job"))?"
        } else if case .cancel(let discard) = change {
            plan.command = "Cancel the campaign"
            plan.question =
                discard ? "Cancel \(place), and delete its jobs? This cannot be undone." : "Cancel \(place)?"
        }
        return plan
    }

    package func apply(_ plan: ChangePlan, _ desk: Desk, _ control: ChangeControl) async throws -> ChangeResult {
        let changes = try await desk.inEachQueue {
            try await CampaignReport(change, campaign, reason, $0, desk, control)
        }
        var result = ChangeResult([])
        var sentences: [String: [QueueKeys]] = [:]
        for (keys, changed) in changes {
            switch changed {
            case .success(let report):
                result.parts.append(report.part(after: change, desk.fleet.access))
                sentences[report.words(after: change, desk.fleet.access), default: []].append(keys)
            case .failure(let error): result.parts.append(.unwritten(keys, keys.jobCommands, error))
            }
        }
        // Queues with the same result share one sentence, in the part of the first queue.
        for (words, queues) in sentences {
            let first = result.parts.firstIndex { $0.queue == queues[0].queue }
            if let first {
                result.parts[first].sentence = "campaign \(campaign.shown) in \(queues.briefly) \(words)"
            }
        }
        let reports = result.parts.compactMap { $0.report as? CampaignReport }
        result.hasNoEffect = !reports.contains { $0.isChanged(by: change) }
        try await makeDue(after: reports, &result, desk, control)
        if let requeue { try await add(requeue, plan, &result, desk, control) }
        if let missing = desk.missingQueues, !control.isStopped() {
            var part = ChangePart()
            part.error = missing
            result.parts.append(part)
        }
        let isKnown = desk.isForced || reports.contains { $0.isKnown }
        let doubt = isKnown ? nil : try await desk.doubt(aboutCampaign: campaign, isStopped: control.isStopped)
        let isLimit = if case .limit = change { true } else { false }
        if result.hasNoEffect, result.error == nil, !isLimit, requeue == nil || doubt != nil {
            throw ChangeRefusal(
                doubt == nil ? .conflict : .unknown, plan.subject,
                result.sentence + (doubt.map { "; \($0)" } ?? ""))
        }
        result.doubt = doubt
        return result
    }

    /// Requeues the cancelled jobs of the queues whose cancellation has ended.
    private func add(
        _ requeue: DeadLettersChange, _ plan: ChangePlan, _ result: inout ChangeResult, _ desk: Desk,
        _ control: ChangeControl
    ) async throws {
        var (plan, desk) = (plan, desk)
        let written = Set(result.parts.filter { $0.error == nil }.compactMap(\.queue))
        desk.queues = desk.queues.filter { written.contains($0.queue) }
        plan.parts = plan.parts.filter { $0.queue.map(written.contains) ?? false }
        let requeued = try await requeue.apply(plan, desk, control)
        for part in requeued.parts {
            guard let index = result.parts.firstIndex(where: { $0.queue == part.queue }) else { continue }
            result.parts[index].count = part.count
            result.parts[index].error = part.error
            result.parts[index].notes += part.notes
            result.parts[index].sentence += (result.parts[index].sentence.isEmpty ? "" : "; ") + part.sentence
        }
        result.hasNoEffect = result.hasNoEffect && requeued.hasNoEffect
    }

    /// Makes deferred jobs due, because their due times depend on the former pause or limit.
    private func makeDue(
        after reports: [CampaignReport], _ result: inout ChangeResult, _ desk: Desk, _ control: ChangeControl
    ) async throws {
        var filter = JobFilter()
        filter.campaigns = [Name(campaign)]
        // A deferred job that failed before has the state `retrying`.
        filter.states = [.deferred, .retrying]
        var changed = Set(reports.map(\.queue))
        switch change {
        case .resume:
            filter.reasons = ["CampaignPaused"]
            changed = Set(reports.filter { $0.before == "paused" }.map(\.queue))
        case .limit: filter.reasons = ["CampaignLimited"]
        case .cancel, .pause, .uncancel: return
        }
        for keys in desk.queues where changed.contains(keys.queue) && !control.isStopped() {
            do {
                var changes = JobChanges(try await desk.fleet.jobs(of: keys), .run, filter)
                try await changes.run(isInterrupted: control.isStopped)
            } catch let error as any RedisFailure {
                let index = result.parts.firstIndex { $0.queue == keys.queue }
                if let index {
                    result.parts[index].error = "deferred jobs of queue \(keys.queue) stay deferred: \(error)"
                }
            }
        }
    }
}

/// The result of a change of a campaign in one queue, as it is in the JSON.
package struct CampaignReport: Encodable, Sendable {
    package var queue: String
    package var campaign: String
    package var state: String
    package var before: String
    package var limitPerSecond: Int?
    /// The campaign's limit before the change; not in the JSON.
    package var limitBefore: Int?
    /// Notifications that ended before the change, by outcome.
    package var outcomes: [String: Int]
    /// Notifications that were in flight when the workers received a cancellation.
    package var inFlight: Int?
    /// Lanes with jobs that have not confirmed the change.
    package var unconfirmed: Int
    /// True if the queue has counted notifications of the campaign, or had a command about it.
    var isKnown = false
    /// The reason why the counters are not included.
    var unread: String?

    private enum CodingKeys: String, CodingKey {
        case queue, campaign, state, before, limitPerSecond, outcomes, inFlight, unconfirmed
    }
}

extension CampaignReport {
    /// Changes a campaign in a queue. Then it waits for up to ten seconds until workers have confirmed the change, and reads the counters.
    /// The operator can end the wait.
    /// - Throws: `RedisError` if the queue is not changed.
    fileprivate init(
        _ change: JobCommands.Change, _ campaign: String, _ reason: String?, _ keys: QueueKeys, _ desk: Desk,
        _ control: ChangeControl
    ) async throws {
        let client = try await desk.fleet.client(for: keys.jobCommands)
        let (version, previous) = try await JobCommands.change(
            change, of: [.campaign(campaign)], by: desk.person, reason: reason ?? "", client, keys)
        let before = previous.first ?? nil
        let now = change.state(after: before?.state ?? .running)
        (queue, self.campaign) = (keys.queue, campaign)
        (state, self.before) = (now.rawValue, (before?.state ?? .running).rawValue)
        limitBefore = before?.perSecond
        if case .limit(let rate) = change { limitPerSecond = rate } else { limitPerSecond = limitBefore }
        (outcomes, unconfirmed, isKnown) = ([:], 0, before != nil)
        do {
            let confirmation = try await JobCommands.waitForConfirmation(
                of: version, client, keys, isStopped: control.isStopped)
            (inFlight, unconfirmed) = (confirmation.cancelledInFlight, confirmation.unconfirmed)
            let counts = try await CampaignCounts.read(campaign, client, keys)
            isKnown = isKnown || counts.total != nil || !counts.counters.isEmpty || counts.guard != nil
            outcomes = Dictionary(uniqueKeysWithValues: Outcome.allCases.map { ($0.rawValue, counts[$0]) })
        } catch let error as any RedisFailure {
            unread = "\(error)"
        }
    }

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
        if unconfirmed > 0 {
            part.error =
                "\(Words.count(unconfirmed, "lane")) of queue \(queue) with jobs did not confirm it within 10 seconds; see "
                + "`\(access.command(["status"]))`"
        }
        if let unread { part.notes = ["queue \(queue) is changed, but could not be read: \(unread)"] }
        part.report = self
        return part
    }

    /// Returns the result in words, for a sentence that begins with the campaign and the queue.
    fileprivate func words(after change: JobCommands.Change, _ access: FleetAccess) -> String {
        switch change {
        case .pause, .resume:
            let words =
                before == "cancelled"
                ? "is cancelled"
                : before == "running" && change == .resume
                    ? "was not paused" : change == .pause ? "is paused" : "is resumed"
            let isOver = before == "cancelled"
            return words
                + (isOver ? "; to send it after all: \(access.command(["campaign", "requeue"], campaign))" : "")
        case .uncancel: return before == "cancelled" ? "is sent again" : "was not cancelled"
        case .limit: return limitPerSecond.map { "is limited to \(Words.number($0)) per second" } ?? "has no limit"
        case .cancel(let discard):
            guard unread == nil else { return "is cancelled" + (discard ? "; its other jobs are deleted" : "") }
            let delivered = outcomes["delivered"] ?? 0
            let flying = inFlight ?? 0
            return
                "is cancelled: \(Words.count(delivered, "notification")) \(delivered == 1 ? "was" : "were") delivered, and "
                + "\(Words.number(flying)) \(flying == 1 ? "was" : "were") in flight"
                + (discard ? "; its other jobs are deleted" : "")
        }
    }
}

extension JobCommands.Change {
    /// Returns the state of the jobs after the change, by the rules of `command-jobs.lua`.
    fileprivate func state(after before: JobCommands.Command.State) -> JobCommands.Command.State {
        switch self {
        case .cancel: .cancelled
        case .pause: before == .cancelled ? .cancelled : .paused
        case .resume: before == .paused ? .running : before
        case .uncancel: before == .cancelled ? .running : before
        case .limit: before
        }
    }
}
