import NIOCore
import PrintableText
import PushJob
import PushQueue
import Redis
import Sockets

/// Enqueues the jobs of a list of tokens. After an interruption or a crash, the same change continues.
package struct SendCampaign: Change {
    package let action = AuditEntry.Action.sendCampaign
    private let campaign: String
    private let jobs: any CampaignJobs
    private let ahead: Int

    /// The maximum size of the jobs of one call, in bytes: Redis executes nothing else while it stores them.
    private static let callSize = 1 << 20
    /// The maximum number of jobs of one call.
    private static let callJobs = 1000
    /// The pause before the queue is looked at again.
    private static let pause = Duration.milliseconds(100)
    /// The time after which a wait for the queue is reported.
    private static let reportedWait = Duration.seconds(10)
    /// The time for which a call is repeated that Redis does not execute.
    private static let patience = TimeAmount.seconds(60)

    /// - Parameter ahead: the maximum number of jobs that wait in the queue.
    package init(_ campaign: String, _ jobs: any CampaignJobs, ahead: Int) throws(FieldMistake) {
        guard JobLabels.isCampaign(campaign) else {
            throw FieldMistake { _ in "the name of a campaign has 1 to 100 bytes, and no control characters" }
        }
        (self.campaign, self.jobs, self.ahead) = (campaign, jobs, ahead)
    }

    private var subject: String { "campaign \(campaign.printable)" }

    private func cursor(_ desk: Desk) async throws -> (cursor: CampaignCursor, keys: QueueKeys) {
        let keys = try await desk.fleet.queue(desk.onlyQueue()).keys
        let client = try await desk.fleet.client(for: keys.retry)
        return (CampaignCursor(campaign, jobs, ahead: ahead, by: desk.person, client, keys), keys)
    }

    package func plan(_ desk: Desk, _ progress: @Sendable (Int) -> Void) async throws -> ChangePlan {
        let (cursor, keys) = try await cursor(desk)
        var reply = try await cursor.ask(after: 0, count: 0)
        // A campaign that was cancelled after its first jobs.
        if reply.state == .moved { reply = try await cursor.ask(after: reply.next, count: 0) }
        if let refusal = refusal(reply, keys) { throw refusal }
        var plan = ChangePlan(subject)
        plan.verb = "enqueued"
        plan.rest = "the other jobs are not enqueued"
        let notifications = jobs.notifications(ofFirst: jobs.count)
        plan.detail = "\(Words.count(notifications, "token")) on queue \(keys.queue)"
        var part = ChangePart(keys.queue, count: jobs.count - reply.next)
        part.notifications = notifications - jobs.notifications(ofFirst: reply.next)
        part.sentence =
            "\(Words.count(part.count, "job")) on \(keys.queue), with \(Words.count(part.notifications, "token"))"
        part.report = report(keys, part, reply.next)
        plan.parts = [part]
        if plan.isEmpty {
            plan.notes.append(
                "all \(Words.count(jobs.count, "job")) of \(subject) were enqueued before; to send them again, choose another name"
            )
        } else if reply.next > 0 {
            plan.notes.append(
                "\(Words.number(reply.next)) of \(Words.count(jobs.count, "job")) were enqueued before")
        }
        return plan
    }

    private func refusal(_ reply: CampaignCursor.Reply, _ keys: QueueKeys) -> ChangeRefusal? {
        let name = campaign.printable
        let problem: String
        switch reply.state {
        case .ready, .pushed, .moved, .full: return nil
        case .cancelled:
            problem =
                "\(subject) is cancelled, after \(Words.count(reply.next, "job")) of its list; "
                + "to send it after all: apns-worker campaign requeue \(name)"
        case .list:
            problem =
                "\(subject) was sent to other tokens, of which \(Words.count(reply.next, "job")) were enqueued; "
                + "to continue, pass the same list; to send to these tokens, choose another name"
        case .job:
            problem =
                "\(subject) was sent with another job, time or --job-size, and \(Words.count(reply.next, "job")) were "
                + "enqueued; to continue, pass the same; to send this job, choose another name"
        case .lost:
            problem =
                "Redis no longer has the position in the list of \(subject), \(keys.campaignList(campaign)); "
                + "were keys deleted, or lost in a failover?"
        }
        return ChangeRefusal(.conflict, subject, problem)
    }

    package func apply(_ plan: ChangePlan, _ desk: Desk, _ control: ChangeControl) async throws -> ChangeResult {
        let (cursor, keys) = try await cursor(desk)
        var part = ChangePart(keys.queue)
        var next = jobs.count - plan.count
        do {
            try await push(with: cursor, keys, from: &next, &part, control)
        } catch let refusal as ChangeRefusal {
            if part.count == 0 { throw refusal }
            part.error = refusal.message
        } catch let error as RedisError {
            if part.count == 0 { throw error }
            part.error = "\(error)"
        }
        let place = "of \(subject) on \(keys.queue)"
        part.sentence =
            next == jobs.count && part.count == jobs.count
            ? "enqueued \(Words.count(part.count, "job")) \(place), with \(Words.count(part.notifications, "token"))"
            : "enqueued \(Words.count(part.count, "job")) \(place); \(Words.number(next)) of \(Words.number(jobs.count)) are enqueued"
        part.report = report(keys, part, next)
        return ChangeResult([part], hasNoEffect: part.count == 0)
    }

    private func push(
        with cursor: CampaignCursor, _ keys: QueueKeys, from next: inout Int, _ part: inout ChangePart,
        _ control: ChangeControl
    ) async throws {
        var bodies: [ByteBuffer] = []
        var (waitsSince, isWaitReported) = (ContinuousClock.Instant?.none, false)
        var patience = WritePatience(limit: Self.patience)
        while next < jobs.count, !control.isStopped() {
            if bodies.isEmpty {
                bodies = try jobs.jobs(after: next, atMost: min(ahead, Self.callJobs), bytes: Self.callSize)
            }
            let reply: CampaignCursor.Reply
            do {
                reply =
                    waitsSince == nil
                    ? try await cursor.push(bodies, after: next)
                    : try await cursor.ask(after: next, count: bodies.count)
            } catch let error as RedisError where error.mayPass {
                // It is the cursor that decides whether the jobs were pushed.
                guard case .again(let pause) = patience.failed(now: .now(), random: .random(in: 0...1)) else {
                    throw error
                }
                try await Task.sleep(for: .nanoseconds(pause.nanoseconds))
                continue
            }
            patience.succeeded()
            switch reply.state {
            case .pushed:
                part.count += bodies.count
                part.notifications += jobs.notifications(ofFirst: reply.next) - jobs.notifications(ofFirst: next)
                (next, bodies) = (reply.next, [])
                control.progress(part.count)
            case .moved:
                // Another process sends the same list, the former call was executed, or a failover lost it.
                (next, bodies) = (reply.next, [])
            case .ready: (waitsSince, isWaitReported) = (nil, false)
            case .full:
                let since = waitsSince ?? .now
                waitsSince = since
                if !isWaitReported, ContinuousClock.now - since >= Self.reportedWait {
                    isWaitReported = true
                    control.note(
                        "waiting: queue \(keys.queue) has \(Words.count(reply.waiting, "waiting job")), and "
                            + "\(Words.count(reply.unended, "notification")) of the campaign have not ended; --ahead \(ahead) "
                            + "allows no more")
                }
                try await Task.sleep(for: Self.pause)
            case .cancelled, .list, .job, .lost:
                if let refusal = refusal(reply, keys) { throw refusal }
            }
        }
    }

    private func report(_ keys: QueueKeys, _ part: ChangePart, _ next: Int) -> CampaignSendReport {
        CampaignSendReport(
            queue: keys.queue, campaign: campaign.printable, jobs: jobs.count,
            notifications: jobs.notifications(ofFirst: jobs.count), repeated: jobs.repeated, refused: jobs.refused,
            enqueued: part.count, next: next)
    }
}

/// The result of sending a campaign. Its members are those of the JSON.
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
    /// The number of jobs that this command enqueued, or would have.
    package var enqueued: Int
    /// The number of jobs that are enqueued by now.
    package var next: Int
}

extension RedisError {
    /// True if the same call may succeed later.
    fileprivate var mayPass: Bool {
        switch self {
        case .server(let answer): answer.isTemporary || ["MOVED", "ASK"].contains(answer.prefix)
        case .notConnected, .connectionLost, .timeout, .connect: true
        case .authentication, .commandTooLarge, .protocolViolation: false
        }
    }
}
