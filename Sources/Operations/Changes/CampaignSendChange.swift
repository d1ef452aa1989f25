import NIOCore
import PrintableText
import PushJob
import PushQueue
import Redis
import Sockets

/// Enqueues the jobs of a list of tokens. If it is repeated after an interruption or a crash, it continues.
package struct SendCampaign: Change {
    package let action = AuditEntry.Action.sendCampaign
    private let list: ListedCampaign
    private let limit: CampaignChange?

    /// The maximum size of the jobs of one call, in bytes: Redis executes nothing else while it stores them.
    private static let callSize = 1 << 20
    private static let callJobs = 1000
    /// The time between two requests to Redis while the command waits.
    private static let pause = Duration.milliseconds(100)
    /// The time after which a wait for the queue is reported.
    private static let reportedWait = Duration.seconds(10)
    /// The maximum time for repeating a call that Redis does not execute.
    private static let patience = TimeAmount.seconds(60)

    /// - Parameter limit: the change that limits the campaign's rate. It is made only if the campaign can be sent.
    package init(_ list: ListedCampaign, limit: CampaignChange? = nil) throws(FieldMistake) {
        guard JobLabels.isCampaign(list.name) else {
            throw FieldMistake { _ in "the name of a campaign has 1 to 100 bytes, and no control characters" }
        }
        (self.list, self.limit) = (list, limit)
        try checkCanary()
    }

    private func checkCanary() throws(FieldMistake) {
        guard list.jobs.canary != nil else { return }
        guard let minimum = list.guard?.minimum else {
            throw FieldMistake { "\($0("canary")) needs \($0("stop_if")), such as invalid_token>5%" }
        }
        let (canary, all) = (list.canaryTokens, list.jobs.notifications(ofFirst: list.jobs.count))
        guard canary < minimum else { return }
        // Hashes choose the canary's tokens, so their number varies. Add three standard deviations to the minimum.
        let share = (Double(minimum) + 3 * Double(minimum).squareRoot()) / Double(all)
        let permille = Int(bounding: (share * 1000).rounded(.up))
        throw FieldMistake { name in
            let ways =
                (permille < 1000 ? ["\(name("canary")) \(permille / 10).\(permille % 10)%"] : [])
                + (canary > 0 ? ["\(name("min")) \(canary) or less"] : [])
            return "\(name("canary")) is \(Words.count(canary, "token")) of this list, and the guard needs "
                + "\(Words.number(minimum)) (\(name("min"))) to stop the campaign; "
                + (ways.isEmpty ? "the list is too short for a canary" : "pass \(ways.joined(separator: ", or "))")
        }
    }

    private var subject: String { "campaign \(list.name.shown)" }

    private func cursor(_ desk: Desk) async throws -> CampaignCursor {
        let keys = try await desk.fleet.queue(desk.onlyQueue()).keys
        return CampaignCursor(list, by: desk.person, try await desk.fleet.client(for: keys.retry), keys)
    }

    package func plan(_ desk: Desk, _ progress: @Sendable (Int) -> Void) async throws -> ChangePlan {
        let cursor = try await cursor(desk)
        let keys = cursor.keys
        var reply = try await cursor.ask(after: 0, count: 0)
        // An earlier run has enqueued some jobs. Only the reply for the next job shows if the campaign is cancelled or stopped.
        if reply.state == .moved { reply = try await cursor.ask(after: reply.next, count: 0) }
        if let refusal = refusal(reply, keys, desk.fleet.access) { throw refusal }
        var plan = ChangePlan(subject)
        plan.verb = "enqueued"
        plan.rest = "the other jobs are not enqueued"
        let notifications = list.jobs.notifications(ofFirst: list.jobs.count)
        plan.detail = "\(Words.count(notifications, "token")) on queue \(keys.queue)"
        if list.canaryJobs > 0 { plan.detail?.append(", of which the canary is \(Words.number(list.canaryTokens))") }
        if let text = list.guard?.text { plan.detail?.append("; stops if \(text)") }
        var part = ChangePart(keys.queue, count: list.jobs.count - reply.next)
        part.notifications = notifications - list.jobs.notifications(ofFirst: reply.next)
        part.sentence =
            "\(Words.count(part.count, "job")) on \(keys.queue), with \(Words.count(part.notifications, "token"))"
        part.report = report(keys, part, reply.next)
        plan.parts = [part]
        if plan.isEmpty {
            plan.notes.append(
                "all \(Words.count(list.jobs.count, "job")) of \(subject) were enqueued before; to send them again, choose another name"
            )
        } else if reply.next > 0 {
            plan.notes.append(
                "\(Words.number(reply.next)) of \(Words.count(list.jobs.count, "job")) were enqueued before")
            // A guard counts from the moment when it is set, so the command does not set it again.
            let known = try await CampaignCounts.read(list.name, try await desk.fleet.client(for: keys.jobs), keys)
                .guard
            if let new = list.guard, known?.rules != new.rules || known?.minimum != new.minimum {
                let old = known.map { "the guard \($0.text), from \(Words.number($0.minimum)) notifications on" }
                plan.notes.append(
                    "\(subject) has \(old ?? "no guard"); to change that: "
                        + desk.fleet.access.command(["campaign", "guard"], list.name)
                )
            }
        }
        return plan
    }

    private func refusal(
        _ reply: CampaignCursor.Reply, _ keys: QueueKeys, _ access: FleetAccess
    ) -> ChangeRefusal? {
        let name = list.name
        let problem: String
        switch reply.state {
        case .ready, .pushed, .moved, .full, .canary: return nil
        case .stopped:
            let canary =
                list.canaryJobs > 0 && reply.next <= list.canaryJobs
                ? "; the canary has \(Self.words(reply.outcomes))" : ""
            problem =
                "\(subject) was paused by its guard: \(reply.reason)\(canary); \(Words.number(reply.next)) of "
                + "\(Words.count(list.jobs.count, "job")) are enqueued; to continue: "
                + "\(access.command(["campaign", "resume"], name)), then this command again; to end it: "
                + access.command(["campaign", "cancel"], name)
        case .cancelled:
            problem =
                "\(subject) is cancelled, after \(Words.count(reply.next, "job")) of its list; "
                + "to send it after all: \(access.command(["campaign", "requeue"], name))"
        case .list:
            problem =
                "\(subject) was sent to other tokens, of which \(Words.count(reply.next, "job")) were enqueued; "
                + "to continue, pass the same list; to send to these tokens, choose another name"
        case .job:
            problem =
                "\(subject) was sent with another job, time, --canary or --job-size, and "
                + "\(Words.count(reply.next, "job")) were enqueued; to continue, pass the former ones; to send this job, choose "
                + "another name"
        case .lost:
            problem =
                "Redis no longer has the position in the list of \(subject), \(keys.campaignList(list.name)); "
                + "were keys deleted, or lost in a failover? This command would enqueue all jobs again"
        }
        return ChangeRefusal(.conflict, subject, problem)
    }

    package func apply(_ plan: ChangePlan, _ desk: Desk, _ control: ChangeControl) async throws -> ChangeResult {
        let cursor = try await cursor(desk)
        let keys = cursor.keys
        if let limit {
            var desk = desk
            // No queue knows the new campaign yet, so its name is not checked.
            desk.isForced = true
            control.note(try await desk.perform(limit).sentence)
        }
        var run = Run(next: list.jobs.count - plan.count, part: ChangePart(keys.queue))
        do {
            try await push(with: cursor, desk.fleet.access, &run, control)
        } catch let refusal as ChangeRefusal {
            if run.part.count == 0 { throw refusal }
            run.part.error = refusal.message
        } catch let error as any RedisFailure {
            if run.part.count == 0 { throw error }
            run.part.error = "\(error)"
        }
        var part = run.part
        let place = "of \(subject) on \(keys.queue)"
        part.sentence =
            run.next == list.jobs.count && part.count == list.jobs.count
            ? "enqueued \(Words.count(part.count, "job")) \(place), with \(Words.count(part.notifications, "token"))"
            : "enqueued \(Words.count(part.count, "job")) \(place); \(Words.number(run.next)) of \(Words.number(list.jobs.count)) are enqueued"
        part.report = report(keys, part, run.next, canary: run.canary)
        return ChangeResult([part], hasNoEffect: part.count == 0)
    }

    private static func words(_ outcomes: [Outcome: Int]) -> String {
        let words = Outcome.allCases.compactMap { outcome in
            outcomes[outcome].flatMap { $0 > 0 ? "\(Words.number($0)) \(outcome.rawValue)" : nil }
        }
        return words.isEmpty ? "no outcomes" : words.joined(separator: ", ")
    }

    /// The position of a run, and its result so far.
    private struct Run {
        var next: Int
        var part: ChangePart
        /// The outcomes of the canary when the wait for it ended.
        var canary: [Outcome: Int]?
        /// True once the canary has been reported.
        var isCanaryEnqueued = false
        /// True once it was reported that the wait is over and the guard still lacks outcomes.
        var isCanaryLate = false
    }

    private func push(
        with cursor: CampaignCursor, _ access: FleetAccess, _ run: inout Run,
        _ control: ChangeControl
    ) async throws {
        var bodies: [ByteBuffer] = []
        // The number of jobs that did not fit into the queue.
        var held = 0
        var (waitsSince, isWaitReported) = (ContinuousClock.Instant?.none, false)
        var patience = WritePatience(limit: Self.patience)
        while run.next < list.jobs.count, !control.isStopped() {
            let awaitsCanary = list.canaryJobs > 0 && run.next == list.canaryJobs && run.canary == nil
            if run.next < list.canaryJobs { control.phase("canary") }
            // Jobs contain the time of their creation, so none are created while the command waits for the queue or the canary.
            if bodies.isEmpty, !awaitsCanary, waitsSince == nil {
                let most = run.next < list.canaryJobs ? list.canaryJobs - run.next : Self.callJobs
                bodies = try list.jobs.jobs(
                    after: run.next, atMost: min(list.ahead, Self.callJobs, most), bytes: Self.callSize)
            }
            let reply: CampaignCursor.Reply
            do {
                reply =
                    waitsSince == nil && !awaitsCanary
                    ? try await cursor.push(bodies, after: run.next)
                    : try await cursor.ask(after: run.next, count: max(1, held))
            } catch let error as RedisError where QueueFailure.redis(error).mayPass {
                // The cursor in Redis decides if these jobs were pushed. The next attempt makes new jobs, with another time.
                bodies = []
                guard let pause = patience.failed(now: .now(), random: .random(in: 0...1)) else {
                    throw error
                }
                try await Task.sleep(for: .nanoseconds(pause.nanoseconds))
                continue
            }
            patience.succeeded()
            if awaitsCanary, reply.state == .ready || reply.state == .full { passCanary(reply, &run, control) }
            switch reply.state {
            case .pushed:
                run.part.count += bodies.count
                run.part.notifications +=
                    list.jobs.notifications(ofFirst: reply.next) - list.jobs.notifications(ofFirst: run.next)
                (run.next, bodies) = (reply.next, [])
                control.progress(run.part.count)
                if run.next == list.canaryJobs, run.next < list.jobs.count { announceCanary(list.wait, &run, control) }
            case .moved:
                // Another process sends the same list, an earlier call was executed after all, or a failover has lost the last calls.
                (run.next, bodies, run.canary) = (reply.next, [], nil)
            case .ready: (waitsSince, isWaitReported, held) = (nil, false, 0)
            case .full:
                let since = waitsSince ?? .now
                waitsSince = since
                (held, bodies) = (max(held, bodies.count), [])
                if !isWaitReported, ContinuousClock.now - since >= Self.reportedWait {
                    isWaitReported = true
                    control.note(
                        "waiting: queue \(cursor.keys.queue) has \(Words.count(reply.waiting, "waiting job")), and "
                            + "\(Words.count(reply.unended, "notification")) of the campaign have not ended; --ahead \(list.ahead) "
                            + "allows no more")
                }
                try await Task.sleep(for: Self.pause)
            case .canary:
                // The clock of Redis may have jumped, so that the wait begins again.
                (run.canary, bodies) = (nil, [])
                reportWait(reply, &run, control)
                try await Task.sleep(for: Self.pause)
            case .stopped, .cancelled, .list, .job, .lost:
                if reply.state == .stopped, list.canaryJobs > 0, run.next <= list.canaryJobs {
                    run.canary = reply.outcomes
                }
                if let refusal = refusal(reply, cursor.keys, access) { throw refusal }
            }
        }
        control.phase("")
    }

    /// Reports once that the canary is enqueued.
    private func announceCanary(_ leftMs: Int, _ run: inout Run, _ control: ChangeControl) {
        guard !run.isCanaryEnqueued else { return }
        run.isCanaryEnqueued = true
        control.note(
            "the canary is enqueued: \(Words.count(list.canaryTokens, "token")) in \(Words.count(list.canaryJobs, "job")); "
                + "waiting for its outcomes" + (leftMs > 0 ? ", for up to \(Words.duration(Int64(leftMs)))" : ""))
    }

    /// Reports that the canary is awaited and, after the wait, that the guard still lacks outcomes.
    private func reportWait(_ reply: CampaignCursor.Reply, _ run: inout Run, _ control: ChangeControl) {
        let ended = list.canaryTokens - reply.unended
        announceCanary(reply.leftMs, &run, control)
        let time = reply.leftMs > 0 ? ", up to \(Words.brief(Int64(reply.leftMs))) left" : ""
        control.phase("canary: \(Words.number(ended)) of \(Words.count(list.canaryTokens, "token")) have ended\(time)")
        guard reply.leftMs == 0, !run.isCanaryLate else { return }
        run.isCanaryLate = true
        control.note(
            "the wait for the canary is over, but only \(Words.number(ended)) of its tokens have ended, and the guard needs "
                + "\(Words.number(reply.needed)); still waiting. Check that workers are running and nothing is paused")
    }

    private func passCanary(_ reply: CampaignCursor.Reply, _ run: inout Run, _ control: ChangeControl) {
        run.canary = reply.outcomes
        control.phase("")
        let left = list.canaryTokens - reply.outcomes.values.reduce(0, +)
        let others = list.jobs.notifications(ofFirst: list.jobs.count) - list.canaryTokens
        control.note(
            "the canary has \(Self.words(reply.outcomes))"
                + (left > 0 ? ", and \(Words.number(left)) of its tokens have not ended" : "")
                + "; continuing with the other \(Words.count(others, "token"))"
        )
    }

    private func report(
        _ keys: QueueKeys, _ part: ChangePart, _ next: Int, canary: [Outcome: Int]? = nil
    ) -> CampaignSendReport {
        CampaignSendReport(
            queue: keys.queue, campaign: list.name, jobs: list.jobs.count,
            notifications: list.jobs.notifications(ofFirst: list.jobs.count), repeated: list.jobs.repeated,
            refused: list.jobs.refused,
            enqueued: part.count, next: next, canary: list.canaryJobs > 0 ? list.canaryTokens : nil,
            canaryOutcomes: canary.map { Dictionary(uniqueKeysWithValues: $0.map { ($0.rawValue, $1) }) })
    }
}

/// The result of sending a campaign, as it is in the JSON.
package struct CampaignSendReport: Encodable, Sendable {
    package var queue: String
    package var campaign: String
    /// The number of jobs of the whole list.
    package var jobs: Int
    /// The number of tokens of the whole list, without repetitions.
    package var notifications: Int
    /// The numbers of repeated tokens, and of lines that are not tokens.
    package var repeated: Int
    package var refused: Int
    /// The number of jobs that this command enqueued or, before it was confirmed, would enqueue.
    package var enqueued: Int
    /// The number of jobs that are enqueued by now, by this command and earlier ones.
    package var next: Int
    /// The number of tokens of the canary.
    package var canary: Int?
    /// The outcomes of the canary when the command stopped waiting for it, or when the guard had paused the campaign.
    package var canaryOutcomes: [String: Int]?
}
