import NIOCore
import PrintableText
import PushJob
import PushQueue
import Redis

/// A change of a pause, as `pause` and `resume` print it in JSON.
package struct PauseChange: Encodable {
    package var queue: String?
    package var app: String?
    /// The pause now; `nil` if it has ended.
    package var paused: FleetStatus.Pause?
    /// The pause before.
    package var before: FleetStatus.Pause?
    /// The number of a paused queue's claimed jobs, and the maximum number of their notifications.
    package var claimed: Int?
    package var notifications: Int?
    /// The number of its waiting jobs.
    package var waiting: Int?

    package init(
        queue: String? = nil, app: String? = nil, paused: FleetStatus.Pause? = nil, before: FleetStatus.Pause? = nil
    ) {
        (self.queue, self.app, self.paused, self.before) = (queue, app, paused, before)
    }

    package var subject: String { app.map { "app \($0)" } ?? "queue \(queue ?? "")" }
}

extension PauseChange {
    /// Pauses a queue, or changes the reason of its pause.
    /// - Parameter handsBack: true to make workers hand back the jobs that they have not submitted.
    /// - Throws: `RedisError`.
    package static func pause(
        _ keys: QueueKeys, reason: String, by: String, handsBack: Bool, _ client: RedisClient
    ) async throws -> PauseChange {
        // The key may hold a value of any type; it is replaced.
        let before = try? await QueuePause.read(client, keys)
        var pause = AppPause(reason: reason, since: try await since(before, client), by: by)
        pause.handsBack = handsBack
        try await QueuePause.set(client, keys, pause)
        return PauseChange(queue: keys.queue, paused: .init(pause), before: before.map { .init($0) })
    }

    /// Pauses an app, or changes the reason of its pause.
    /// - Throws: `RedisError`.
    package static func pause(
        app: String, reason: String, by: String, _ client: RedisClient, _ keys: SharedKeys
    ) async throws -> PauseChange {
        let before = try? await AppPauses.read(app, client, keys)
        let pause = AppPause(reason: reason, since: try await since(before, client), by: by)
        try await AppPauses.set(pause, of: app, client, keys)
        return PauseChange(app: app, paused: .init(pause), before: before.map { .init($0) })
    }

    /// Returns the beginning of a pause. A changed pause keeps its own; a new one begins now, by Redis' clock.
    private static func since(_ before: AppPause?, _ client: RedisClient) async throws -> Int64 {
        if let since = before?.since { return since }
        let time = try await client.call(RedisCommand("TIME")).root.children.compactMap(\.string).first
        return time.flatMap { Int64($0) }.map { $0 * 1000 } ?? Moment.now
    }
}

extension FleetStatus.Pause {
    /// True if an operator gave no reason: the reason then names the operator.
    package var isReasonless: Bool { by.map { reason == "by \($0)" } ?? false }

    /// The reason, the beginning and the origin.
    package var inWords: String {
        let since = since.map { ", since " + Moment.text($0) }
        let by = isReasonless ? nil : by.map { isByHand ? ", by \($0)" : ", noticed by \($0)" }
        return reason + (since ?? "") + (by ?? "")
    }
}

/// The notifications of claimed jobs, which workers still send.
package struct ClaimedNotifications {
    /// The number of devices of the claimed jobs. Some may have received their notification already.
    package var notifications = 0
    /// True if there were too many claims to count.
    package var isPartial = false
    /// The time that they take at the workers' current rate, in milliseconds; `nil` if nothing is sent.
    package var milliseconds: Int64?

    /// The maximum number of bytes that are read.
    private static let maximumBytes = 64 << 20

    /// Counts the devices of a queue's claimed jobs. In the meantime workers settle jobs and, before they have seen the
    /// pause, claim some.
    package static func count(
        _ client: RedisClient, _ keys: QueueKeys, _ found: QueueOverview, as format: JobFormat
    ) async throws -> ClaimedNotifications {
        var (sum, bytes) = (ClaimedNotifications(), 0)
        var claimed = JobFilter()
        claimed.states = [.claimed]
        try await QueueJobs(client, keys, format: format).sweep(claimed) { _, jobs, _ in
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
}

/// The texts that operators give along with a change.
package enum OperatorText {
    /// Returns what is wrong with the reason of a change; nil if nothing is.
    package static func problem(ofReason reason: String) -> String? {
        let isGood = !reason.printable.allSatisfy(\.isWhitespace) && reason.count <= 200 && reason.utf8.count <= 800
        return isGood ? nil : "must have 1 to 200 printable characters"
    }

    /// Returns what is wrong with a reason, a topic or an environment of invalid tokens; nil if nothing is.
    package static func problem(ofLabel label: String) -> String? {
        let isGood = (1...255).contains(label.utf8.count) && label.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7F }
        return isGood ? nil : "must have 1 to 255 printable ASCII characters without spaces"
    }
}
