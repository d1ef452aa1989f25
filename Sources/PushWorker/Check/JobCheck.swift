import APNS
import NIOCore
import PushQueue

/// What would become of a job.
public struct JobCheck {
    /// What a job is, for those who would send it.
    public struct Plan: Sendable {
        /// The index of the app that it goes through.
        public var app: Int
        /// What would be sent.
        public var notifications: [Notification]
    }

    private let apps: [AppConfiguration]
    private let router: JobRouter

    /// - Parameter apps: the apps of the worker.
    public init(_ apps: [AppConfiguration]) {
        self.apps = apps
        router = JobRouter(apps)
    }

    /// Says what would become of a job.
    /// - Parameters:
    ///   - name: what to call it, such as `job, line 3`.
    ///   - now: milliseconds since 1970.
    public func run(_ body: ByteBuffer, name: String, now: Int64) -> (verdicts: [CheckVerdict], plan: Plan?) {
        let job: Job
        do throws(JobError) {
            job = try JobDecoder.decode(body)
        } catch {
            return ([.init(.failure, name, "\(error.reason): \(error)")], nil)
        }
        do throws(Unsendable) {
            let plan = try plan(job, now: now)
            return ([sentence(job, plan, name, now: now)] + remarks(job, name, now: now), plan)
        } catch {
            return ([.init(.failure, name, "it would be kept as a dead letter, \(error.reason): \(error.detail)")], nil)
        }
    }

    private func plan(_ job: Job, now: Int64) throws(Unsendable) -> Plan {
        let app = try router.route(job)
        let identity = job.id.map(job.text) ?? ByteBuffer(string: "check")
        let template = try router.notification(for: job, app: app, identity: identity, firstSeen: now)
        guard let tokens = job.tokens else { return Plan(app: app, notifications: [template]) }
        var notifications: [Notification] = []
        for field in tokens {
            do throws(DeviceToken.Invalid) {
                var notification = template
                notification.deviceToken = try router.deviceToken(job.text(field), app: app)
                notification.apnsID = APNSID(jobID: identity, token: notification.deviceToken.hex)
                notifications.append(notification)
            } catch {
                throw Unsendable(reason: "MalformedToken", detail: "token \(notifications.count + 1): \(error)")
            }
        }
        return Plan(app: app, notifications: notifications)
    }

    private func sentence(_ job: Job, _ plan: Plan, _ name: String, now: Int64) -> CheckVerdict {
        let app = apps[plan.app]
        guard let first = plan.notifications.first else { return .init(.failure, name, "it has no device tokens") }
        let count = plan.notifications.count
        let devices = job.channel != nil ? "the channel" : count == 1 ? "1 device" : "\(count) devices"
        var parts = [
            "it would be sent to \(devices) through the app \(app.name) (\(app.endpoint))",
            "topic \(String(decoding: first.topic.readableBytesView, as: UTF8.self))",
            "push type \(first.pushType.rawValue)", "payload of \(first.payload.readableBytes) bytes",
        ]
        if let priority = first.priority { parts.append("priority \(priority)") }
        if let expiration = first.expiration {
            parts.append(expiration == 0 ? "now or never" : "until second \(expiration)")
        }
        return .init(.ok, name, parts.joined(separator: ", "))
    }

    private func remarks(_ job: Job, _ name: String, now: Int64) -> [CheckVerdict] {
        var remarks: [CheckVerdict] = []
        if let expiration = job.expirationSecond(firstSeen: now), expiration > 0, expiration * 1000 <= now {
            remarks.append(.init(.warning, name, "it has expired, and would not be sent"))
        }
        if let sendAt = job.sendAt, sendAt > now {
            remarks.append(.init(.warning, name, "it would be held for \((sendAt - now + 999) / 1000) s (`send_at`)"))
        }
        if job.id == nil {
            remarks.append(
                .init(
                    .warning, name,
                    "it has no `id`: give it one, so that a repetition carries the same apns-id whatever happens"))
        }
        return remarks
    }
}
