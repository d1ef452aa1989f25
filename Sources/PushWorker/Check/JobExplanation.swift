import APNS
import FoundationEssentials
import NIOCore
import PushJob
import PushQueue

/// What would be sent for a job, and where each part of it comes from, in words.
struct JobExplanation {
    let job: Job
    let plan: JobCheck.Plan
    let app: AppConfiguration
    let isOnlyApp: Bool
    let maximumAttempts: Int
    /// Milliseconds since 1970.
    let now: Int64

    /// What holds, a sentence each, in the order in which one would ask.
    var facts: [String] {
        guard let first = plan.notifications.first else { return [] }
        var facts = [destination, headers(first), payload(first), time(first), identity(first)]
        if let collapseID = first.collapseID {
            let source = job.collapseID != nil ? "" : ", derived from its id (`collapse_duplicates`)"
            facts.append(
                "collapse id \(String(buffer: collapseID))\(source): of those with the same, a device shows the last")
        }
        return facts
    }

    /// What works, and may not be meant.
    var warnings: [String] {
        var warnings: [String] = []
        if let expiration = job.expirationSecond(firstSeen: now), expiration > 0, expiration * 1000 <= now {
            warnings.append("it has expired, and would not be sent: it would end as `expired`")
        }
        if let sendAt = job.sendAt, sendAt > now {
            warnings.append(
                "it would be held for \((sendAt - now + 999) / 1000) s, until \(Self.text(sendAt)) (`send_at`)")
        }
        if job.id == nil {
            warnings.append(
                "it has no `id`: give it one, so that a repetition carries the same apns-id whatever happens")
        }
        if job.apnsID != nil, job.tokens != nil {
            warnings.append("its `apns_id` is for one notification, and is ignored: each of its `tokens` has its own")
        }
        return warnings
    }

    private var destination: String {
        let count = plan.notifications.count
        let devices = job.channel != nil ? "the channel" : count == 1 ? "1 device" : "\(count) devices"
        let why =
            job.app != nil ? "which its `app` names" : isOnlyApp ? "the only one" : "which is the one with its `topic`"
        return "it would be sent to \(devices) through the app \(app.name) (\(app.endpoint)), \(why)\(builds)"
    }

    /// The commonest reason why APNs calls a token bad.
    private var builds: String {
        switch app.environment {
        case _ where job.channel != nil: ""
        case "production":
            "; production takes tokens of App Store and TestFlight builds, not those of builds that Xcode ran"
        case "sandbox":
            "; the sandbox takes tokens of builds that Xcode ran, not those of App Store and TestFlight builds"
        default: ""
        }
    }

    private func headers(_ notification: Notification) -> String {
        let topic = "topic \(String(buffer: notification.topic)) (\(job.topic != nil ? "its own" : "the app's"))"
        let type = "push type \(notification.pushType.rawValue) (\(pushTypeSource))"
        let priority =
            switch (notification.priority, job.priority) {
            case (nil, _): "no priority, which is 10 to APNs"
            case (let priority?, nil): "priority \(priority) (the default for this push type)"
            case (let priority?, _): "priority \(priority) (its own)"
            }
        return "\(topic), \(type), \(priority)"
    }

    private var pushTypeSource: String {
        guard job.pushType == nil else { return "its own" }
        return switch job.kind {
        case .alert: "it has no `push_type`, and nothing that hints at another"
        case .background: "inferred: content-available, and nothing to show"
        case .liveActivity: job.channel != nil ? "inferred: it has a `channel`" : "inferred: `event` or `content_state`"
        case .mdm: "inferred: it has `mdm`"
        }
    }

    private func payload(_ notification: Notification) -> String {
        let limit =
            switch app.transport {
            case .gateway(let options): options.payloadLimit
            case .http2: NotificationRules.sizeLimit(notification.pushType, isOnChannel: job.channel != nil)
            }
        let source = job.makesPayload ? ", made of the job's short forms" : ", as it stands in the job"
        return "payload of \(notification.payload.readableBytes) bytes of at most \(limit)\(source)"
    }

    private func time(_ notification: Notification) -> String {
        let attempts = job.maxAttempts.map { "\($0) (`max_attempts`)" } ?? "\(maximumAttempts)"
        let begin = job.sendAt.map { $0 > now } ?? false ? "" : "sent at once; "
        let end =
            switch notification.expiration {
            case nil: "it has no `expiration`: APNs keeps it for a device that is away as long as it likes to"
            case 0?: "now or never: APNs does not keep it for a device that is away"
            case let second?: "good until \(Self.text(Int64(second) * 1000)), after which nobody tries any more"
            }
        return "\(begin)at most \(attempts) attempts; \(end)"
    }

    private func identity(_ notification: Notification) -> String {
        if plan.notifications.count > 1 {
            return "each token's apns-id is derived from \(job.id == nil ? "the claim" : "the `id`") and the token"
        }
        if job.apnsID != nil { return "apns-id \(notification.apnsID.map { "\($0)" } ?? "none") (its own)" }
        return job.id == nil
            ? "the apns-id is made when it is claimed, for it has no `id`"
            : "apns-id \(notification.apnsID.map { "\($0)" } ?? "none") (derived from its `id` and the token)"
    }

    /// A time in milliseconds since 1970, for people.
    private static func text(_ milliseconds: Int64) -> String {
        Date(timeIntervalSince1970: Double(milliseconds / 1000)).formatted(.iso8601)
    }
}
