import NIOCore
import PrintableText
import PushJob
import PushQueue
import Redis

/// Pauses queues or an app, or changes the reasons of their pauses.
package struct PauseChange: Change {
    package let action = AuditEntry.Action.pause
    /// The app; `nil` for the queues of the desk.
    package let app: String?
    package var apps: [String] { app.map { [$0] } ?? [] }
    private let reason: String?
    /// True to make workers hand back the jobs that they have not submitted.
    package let handsBack: Bool

    /// The fields of a pause of queues, and of a pause of an app.
    package static let ofQueues = [Field("reason"), Field("now", .flag)]
    package static let ofApp = [Field("app", isRequired: true), Field("reason")]

    /// - Parameter isOfApp: true to pause the app in the field `app`; false to pause the desk's queues.
    package init(_ fields: Fields, isOfApp: Bool) throws(FieldMistake) {
        if isOfApp, try fields.isSet("now") {
            throw FieldMistake { "\($0("now")) is for queues: jobs of a paused app are deferred at once" }
        }
        try fields.check(isOfApp ? Self.ofApp : Self.ofQueues)
        app = isOfApp ? try fields.required("app") : nil
        reason = try fields.reason()
        handsBack = try fields.isSet("now")
    }

    package func plan(_ desk: Desk, _ progress: @Sendable (Int) -> Void) async throws -> ChangePlan {
        var plan: ChangePlan
        if let app {
            plan = ChangePlan("app \(app)", parts: [ChangePart(count: 1)])
            try await desk.checkExistence(ofApp: app, plan.subject)
        } else {
            plan = ChangePlan(desk.queues.inWords, parts: desk.queues.map { ChangePart($0.queue, count: 1) })
            try await desk.checkExistence(of: desk.queues, plan.subject)
            if desk.queues.count > 1 { plan.question = "Pause \(desk.queues.inWords)?" }
        }
        plan.detail = reason ?? "by \(desk.person)"
        plan.isCounted = false
        return plan
    }

    package func apply(_ plan: ChangePlan, _ desk: Desk, _ control: ChangeControl) async throws -> ChangeResult {
        let reason = reason ?? "by \(desk.person)"
        if let app {
            let keys = desk.fleet.sharedKeys
            let client = try await desk.fleet.client(for: keys.appPaused(app))
            let before = try await AppPauses.read(app, client, keys)
            let pause = PauseRecord(reason: reason, since: try await since(before, client), by: desk.person)
            try await AppPauses.set(pause, of: app, client, keys)
            var part = PauseReport(app: app, paused: pause, before: before).part
            part.explanation = "Workers defer its jobs within a few seconds, without spending attempts."
            return ChangeResult([part])
        }
        return ChangeResult(try await desk.changeEach(\.paused) { try await pause($0, reason, desk) })
    }

    /// Pauses a queue, and then counts the notifications that its workers still send.
    private func pause(_ keys: QueueKeys, _ reason: String, _ desk: Desk) async throws -> ChangePart {
        let client = try await desk.fleet.client(for: keys.paused)
        let before = try await QueuePause.readAny(client, keys)
        var pause = PauseRecord(reason: reason, since: try await since(before, client), by: desk.person)
        pause.handsBack = handsBack
        try await QueuePause.set(client, keys, pause)
        var report = PauseReport(queue: keys.queue, paused: pause, before: before)
        do {
            let source = try await desk.fleet.queue(keys, ignoresSettings: true)
            let found = try await QueueOverview.read(client, source.keys)
            let claimed = try await ClaimedNotifications.count(client, source, found)
            (report.claimed, report.notifications) = (found.claims, claimed.notifications)
            report.waiting = found.waiting + found.due
            var part = report.part
            part.explanation = claimed.inWords(found, handsBack: handsBack)
            return part
        } catch let error as any RedisFailure {
            var part = report.part
            part.notes = ["queue \(keys.queue) is paused, but could not be read: \(error)"]
            return part
        }
    }

    /// Returns the time when the pause began: the beginning of the pause that it replaces, or now.
    private func since(_ before: PauseRecord?, _ client: RedisClient) async throws -> Int64 {
        if let since = before?.since { return since }
        return try await client.time() / 1000 * 1000
    }
}

package struct ResumeChange: Change {
    package let action = AuditEntry.Action.resume
    package let app: String?
    package var apps: [String] { app.map { [$0] } ?? [] }

    /// - Parameter isOfApp: true to resume the app in the field `app`; false to resume the desk's queues.
    package init(_ fields: Fields, isOfApp: Bool) throws(FieldMistake) {
        try fields.check(isOfApp ? Self.ofApp : [])
        app = isOfApp ? try fields.required("app") : nil
    }

    package static let ofApp = [Field("app", isRequired: true)]

    package func plan(_ desk: Desk, _ progress: @Sendable (Int) -> Void) async throws -> ChangePlan {
        var plan: ChangePlan
        if let app {
            plan = ChangePlan("app \(app)", parts: [ChangePart(count: 1)])
        } else {
            plan = ChangePlan(desk.queues.inWords, parts: desk.queues.map { ChangePart($0.queue, count: 1) })
            if desk.queues.count > 1 { plan.question = "Resume \(desk.queues.inWords)?" }
        }
        plan.isCounted = false
        return plan
    }

    package func apply(_ plan: ChangePlan, _ desk: Desk, _ control: ChangeControl) async throws -> ChangeResult {
        if let app { return try await resume(app, plan, desk, control) }
        var result = ChangeResult(
            try await desk.changeEach(\.paused) { keys in
                let client = try await desk.fleet.client(for: keys.paused)
                let before = try await QueuePause.readAny(client, keys)
                let wasPaused = try await QueuePause.clear(client, keys)
                return PauseReport(queue: keys.queue, before: before).part(wasPaused)
            })
        result.hasNoEffect = result.count == 0
        if result.hasNoEffect, result.error == nil { try await desk.checkExistence(of: desk.queues, plan.subject) }
        return result
    }

    private func resume(
        _ app: String, _ plan: ChangePlan, _ desk: Desk, _ control: ChangeControl
    ) async throws -> ChangeResult {
        let keys = desk.fleet.sharedKeys
        let client = try await desk.fleet.client(for: keys.appPaused(app))
        let before = try await AppPauses.read(app, client, keys)
        let wasPaused = try await AppPauses.end(app, client, keys)
        let report = PauseReport(app: app, before: before)
        if !wasPaused { try await desk.checkExistence(ofApp: app, plan.subject) }
        // The probe is sent even if the app was not paused, because its scopes may still be slow after their fault was fixed.
        try await AppPauses.sendProbe(of: app, client, keys)
        var part = report.part(wasPaused)
        part.count = 1
        part.sentence += "; each lane sends a probe at once"
        return ChangeResult([part])
    }
}

/// The result of a change of a pause, as it is in the JSON.
package struct PauseReport: Encodable, Sendable {
    package var queue: String?
    package var app: String?
    /// The pause now; `nil` if it has ended.
    package var paused: PauseRecord?
    package var before: PauseRecord?
    /// The number of a paused queue's claimed jobs, and the maximum number of their notifications.
    package var claimed: Int?
    package var notifications: Int?
    package var waiting: Int?

    private var subject: String { app.map { "app \($0)" } ?? "queue \(queue ?? "")" }

    fileprivate var part: ChangePart {
        var part = ChangePart(queue, count: 1)
        part.sentence =
            "\(subject) is paused: \(paused?.reason ?? "")"
            + (before.map { " (it was paused before: \($0.withOrigin))" } ?? "")
        part.report = self
        return part
    }

    fileprivate func part(_ wasPaused: Bool) -> ChangePart {
        var part = ChangePart(queue, count: wasPaused ? 1 : 0)
        part.sentence =
            wasPaused
            ? "\(subject) is resumed" + (before.map { "; it was paused: \($0.withOrigin)" } ?? "")
            : "\(subject) was not paused"
        part.report = self
        return part
    }
}

/// The notifications of claimed jobs, which workers still send.
package struct ClaimedNotifications {
    /// The number of devices of the claimed jobs. Some devices may have received their notification already.
    package var notifications = 0
    /// True if there were too many claims to count.
    package var isPartial = false
    /// The time for sending the notifications at the workers' current rate, in milliseconds; `nil` if nothing is sent.
    package var milliseconds: Int64?

    /// The count ends at this size of the jobs, in bytes.
    private static let maximumBytes = 64 << 20

    /// Counts the devices of a queue's claimed jobs. The count is an estimate, because workers settle jobs in the meantime, and claim jobs
    /// until they notice the pause.
    package static func count(
        _ client: RedisClient, _ source: QueueSource, _ found: QueueOverview
    ) async throws -> ClaimedNotifications {
        var (sum, bytes) = (ClaimedNotifications(), 0)
        var claimed = JobFilter()
        claimed.states = [.claimed]
        try await QueueJobs(client, source.keys, format: source.format).sweep(claimed) { _, jobs, _ in
            for job in jobs {
                bytes += job.size
                // A job that cannot be read becomes a dead letter.
                if job.isValid { sum.notifications += job.notifications }
            }
            sum.isPartial = bytes > maximumBytes
            return !sum.isPartial
        }
        let rate = found.workers.reduce(0) { $0 + ($1.report?.rate ?? 0) }
        if rate >= 1 { sum.milliseconds = Int64(bounding: Double(sum.notifications) / rate * 1000) }
        return sum
    }

    /// Returns a sentence about the claimed and the waiting jobs of a paused queue.
    fileprivate func inWords(_ found: QueueOverview, handsBack: Bool) -> String {
        let waiting = found.waiting + found.due
        let rest = waiting == 1 ? "1 waits" : "\(Words.number(waiting)) wait"
        guard found.claims > 0 else { return "Workers claim none of its jobs; \(rest)." }
        let jobs = found.claims == 1 ? "the job that is claimed" : "the \(Words.number(found.claims)) claimed jobs"
        if handsBack {
            let inFlight = found.workers.reduce(0) { $0 + ($1.report?.inFlight ?? 0) }
            return "Workers release \(jobs) within seconds, except for the notifications in flight, "
                + "about \(Words.number(inFlight)); \(rest)."
        }
        return
            "Workers finish \(jobs), \(isPartial ? "at least" : "at most") \(Words.count(notifications, "notification"))"
            + (milliseconds.map { ", in about \(Words.duration($0))" } ?? "") + "; \(rest)."
    }
}
