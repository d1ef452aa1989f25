import APNS
import FoundationEssentials
import LegacyAPNS
import NIOCore
import PrintableText
import PushJob
import PushQueue

/// Explains what would be sent for a job, and the source of each part.
struct JobExplanation {
    let job: Job
    let plan: JobPlan
    let app: AppConfiguration
    let isOnlyApp: Bool
    /// True if the app is only assumed, because no app is known.
    let isAssumed: Bool
    let maximumAttempts: Int
    /// The time in milliseconds since 1970.
    let now: Int64

    /// The facts, as sentences, in the order of a reader's questions.
    var facts: [String] {
        guard let first = plan.notifications.first else { return [] }
        var facts = [destination, headers(first), payload(first), time(first), identity(first)]
        if let collapseID = first.collapseID, gateway == nil, job.channel == nil {
            let source = job.collapseID != nil ? "" : ", derived from its id (`collapse_duplicates`)"
            facts.append(
                "collapse id \(String(buffer: collapseID))\(source): only the last notification with this id is shown")
        }
        if let key = job.replaces {
            let id = job.id.map { "“\(String(buffer: job.text($0)))”" } ?? "its ID"
            facts.append(
                "it is sent only while it is the newest job of its key \(String(buffer: job.text(key))) (`replaces`): "
                    + (job.sendAt == nil
                        ? "while newest:\(String(buffer: job.text(key))) in its queue holds \(id), or nothing"
                        : "from its `send_at` until another job takes its place"))
        }
        return facts
    }

    private var gateway: GatewayOptions? {
        if case .gateway(let options) = app.transport { options } else { nil }
    }

    /// Warnings about members of the job that the app's transport can't carry.
    var omitted: [String] {
        guard let gateway else {
            return job.channel != nil && (job.collapseID != nil || job.collapsesDuplicates)
                ? ["a broadcast has no collapse ID: its `collapse_id` is omitted"] : []
        }
        var identifiers: [String] = []
        if job.collapseID != nil { identifiers.append("`collapse_id`") }
        if job.collapsesDuplicates { identifiers.append("`collapse_duplicates`") }
        if job.apnsID != nil { identifiers.append("`apns_id`") }
        var warnings =
            identifiers.isEmpty
            ? [] : ["the gateway's frame has no field for \(identifiers.joined(separator: " and ")), omitted"]
        var values: [String] = []
        if gateway.frame != .items, job.priority != nil { values.append("`priority`") }
        if gateway.frame == .simple, job.expiration != nil { values.append("`expiration`") }
        if !values.isEmpty {
            warnings.append(
                "the gateway's frame \(gateway.frame.rawValue) has no field for \(values.joined(separator: " and ")): "
                    + "omitted")
        }
        if gateway.frame == .items, job.priority == 1 {
            warnings.append("the gateway supports only priorities 10 and 5; 1 is sent as 5")
        }
        return warnings
    }

    /// Warnings about a job that can be sent, but perhaps not as its producer intends.
    var warnings: [String] {
        var warnings = omitted
        if let sendAt = job.sendAt, sendAt > now {
            warnings.append("it would be deferred until \(utcTime(sendAt / 1000)) (`send_at`)")
        }
        if job.id == nil {
            warnings.append(
                "it has no `id`; add one, so that every repetition carries the same apns-id")
        }
        return warnings
    }

    private var destination: String {
        let count = plan.notifications.count
        let devices = job.channel != nil ? "the channel" : count == 1 ? "1 device" : "\(count) devices"
        guard !isAssumed else { return "it would be sent to \(devices), if a worker has an app for it" }
        let why =
            job.app != nil ? "which its `app` names" : isOnlyApp ? "the only one" : "which has its `topic`"
        return "it would be sent to \(devices) through the app \(app.name) (\(app.endpoint)), \(why)\(builds)"
    }

    /// A hint at the most common reason why APNs reports a token as bad.
    private var builds: String {
        switch app.environment {
        case _ where job.channel != nil: ""
        case "production":
            "; production accepts tokens of App Store and TestFlight builds, not those of builds that Xcode ran"
        case "sandbox":
            "; the sandbox accepts tokens of builds that Xcode ran, not those of App Store and TestFlight builds"
        default: ""
        }
    }

    private func headers(_ notification: Notification) -> String {
        let topic =
            isAssumed && job.topic == nil
            ? "the app's topic"
            : "topic \(String(buffer: notification.topic)) (\(job.topic != nil ? "the job's" : "the app's"))"
        let type = "push type \(notification.pushType.name) (\(pushTypeSource))"
        let priority =
            switch (notification.priority, job.priority) {
            case _ where gateway.map { $0.frame != .items } ?? false: "no priority; the frame has no field for it"
            case (nil, _): "no priority (APNs assumes 10)"
            case (let priority?, nil): "priority \(priority) (the default for this push type)"
            case (let priority?, _): "priority \(priority) (the job's)"
            }
        return "\(topic), \(type), \(priority)"
    }

    private var pushTypeSource: String {
        guard job.pushType == nil else { return "the job's" }
        switch job.inferredPushType {
        case nil: return "default, without `push_type`; `content-changed` is for both widgets and controls"
        case .alert: return "default, without `push_type`"
        case .background: return "inferred: content-available, and nothing to show"
        case .liveactivity:
            return job.channel != nil ? "inferred: it has a `channel`" : "inferred: it has `event` or `content_state`"
        case .mdm: return "inferred: it has `mdm`"
        default: return "inferred: `content-changed`, and the topic's suffix"
        }
    }

    private func payload(_ notification: Notification) -> String {
        let limit =
            switch app.transport {
            case .gateway(let options): options.payloadLimit
            case .http2: NotificationRules.sizeLimit(notification.pushType, isOnChannel: job.channel != nil)
            }
        let source = job.makesPayload ? ", made from the job's short forms" : ", unchanged from the job"
        return "payload of \(notification.payload.readableBytes) bytes of at most \(limit)\(source)"
    }

    private func time(_ notification: Notification) -> String {
        let attempts = job.maxAttempts.map { "\($0) (`max_attempts`)" } ?? "\(maximumAttempts)"
        let begin = job.sendAt.map { $0 > now } ?? false ? "" : "sent at once; "
        let isCall = notification.pushType == .voip || notification.pushType == .pushtotalk
        let source =
            job.expiration != nil
            ? "the job's `expiration`"
            : job.channel != nil || isCall
                ? "the default for this push type"
                : app.expiration != nil ? "the app's `expiration`" : "the default through the gateway"
        let end =
            switch notification.expiration {
            case nil: "no `expiration`: APNs decides how long it stores the notification for an offline device"
            case 0? where isCall:
                "now or never (\(source)): APNs does not store it for an offline device, and it is not retried "
                    + "after \(RoutedApp.callPatience / 1000) s"
            case 0?: "now or never (\(source)): APNs does not store it for an offline device"
            case let second?:
                "valid until \(utcTime(Int64(second))) (\(source)), after which it is not retried"
            }
        return "\(begin)at most \(attempts) attempts; \(end)"
    }

    private func identity(_ notification: Notification) -> String {
        if gateway != nil { return "no apns-id, because the gateway does not support it" }
        if plan.notifications.count > 1 {
            return "each token's apns-id is derived from \(job.id == nil ? "the claim" : "the `id`") and the token"
        }
        if job.apnsID != nil { return "apns-id \(notification.apnsID.map { "\($0)" } ?? "none") (the job's)" }
        return job.id == nil
            ? "apns-id made when the job is claimed, because it has no `id`"
            : "apns-id \(notification.apnsID.map { "\($0)" } ?? "none") (derived from its `id` and the token)"
    }
}
