import APNS
import NIOCore
import PushJob
import PushQueue

/// From a job to the app that it goes through, and to what is sent to APNs.
struct JobRouter {
    private(set) var apps: [RoutedApp]
    /// The indices of the apps that jobs go through.
    private var open: [Int]

    init(_ apps: [AppConfiguration]) {
        self.apps = apps.map(RoutedApp.init)
        open = Array(self.apps.indices)
    }

    /// Goes by other apps from now on. What has been routed keeps its index.
    /// - Parameters:
    ///   - apps: all that there have ever been, in their old order, and new ones behind them.
    ///   - isLeaving: whether jobs no longer go through an app.
    mutating func replace(_ apps: [AppConfiguration], isLeaving: (Int) -> Bool) {
        self.apps = apps.map(RoutedApp.init)
        open = apps.indices.filter { !isLeaving($0) }
    }

    /// The app that a job goes through.
    /// - Returns: its index.
    func route(_ job: Job) throws(Unsendable) -> Int {
        if let field = job.app {
            let name = job.text(field)
            guard let index = open.first(where: { apps[$0].name == name }) else {
                throw Unsendable(
                    reason: "UnknownApp", detail: "this worker has no app of the name that the job's `app` gives")
            }
            return index
        }
        if open.count == 1 { return open[0] }
        guard let field = job.topic else {
            throw Unsendable(
                reason: "NoApp", detail: "the job has neither `app` nor `topic`, and there are several apps")
        }
        let topic = job.text(field)
        guard let index = open.first(where: { apps[$0].hasTopic(topic) }) else {
            throw Unsendable(reason: "UnknownApp", detail: "this worker has no app with the job's `topic`")
        }
        return index
    }

    /// The notification of a job with one token, or what the notifications of a job with many share.
    func notification(
        for job: Job, app index: Int, identity: ByteBuffer, firstSeen: Int64
    ) throws(Unsendable) -> Notification {
        let isOnChannel = job.channel != nil
        let pushType = try pushType(of: job)
        let given = job.priority.map(UInt8.init(clamping:))
        let gateway = apps[index].gateway
        let limit = gateway?.payloadLimit ?? NotificationRules.sizeLimit(pushType, isOnChannel: isOnChannel)
        let payload = try payload(of: job, limit: limit)
        if gateway != nil {
            let refusal = GatewayRules.refusal(
                pushType, isOnChannel: isOnChannel,
                isOwnTopic: job.topic.map { apps[index].hasTopic(job.text($0)) } ?? true, payload: payload,
                limit: limit)
            if let refusal { throw refusal }
        }
        if let refusal = NotificationRules.refusal(
            pushType, isInferred: job.pushType == nil, priority: given, isOnChannel: isOnChannel, payload: payload)
        {
            throw refusal
        }
        var notification = Notification(
            deviceToken: .none, payload: payload,
            topic: job.topic.map { pushType.topic(job.text($0)) } ?? apps[index].topic(for: pushType),
            pushType: pushType,
            priority: NotificationRules.priority(given, pushType, isOnChannel: isOnChannel),
            expiration: NotificationRules.expiration(
                job.expirationSecond(firstSeen: firstSeen), isOnChannel: isOnChannel)
                ?? (gateway == nil ? nil : GatewayRules.expiration(firstSeen: firstSeen)),
            collapseID: job.collapseID.map(job.text))
        if job.collapsesDuplicates, notification.collapseID == nil {
            // The same for all devices, and for all times that it is sent.
            notification.collapseID = ByteBuffer(
                string: APNSID(jobID: identity, token: ByteBuffer(string: "collapse")).description)
        }
        if let field = job.token, job.tokens == nil {
            do throws(DeviceToken.Invalid) {
                notification.deviceToken = try deviceToken(job.text(field), app: index)
            } catch {
                throw Unsendable(reason: "MalformedToken", detail: "\(error)")
            }
            notification.apnsID =
                job.apnsID.flatMap { APNSID(job.text($0).readableBytesView) }
                ?? APNSID(jobID: identity, token: notification.deviceToken.hex)
        }
        if let field = job.channel { try address(&notification, of: job, to: job.text(field), identity) }
        return notification
    }

    /// A job's device token, if the app's transport can carry it.
    func deviceToken(_ text: ByteBuffer, app index: Int) throws(DeviceToken.Invalid) -> DeviceToken {
        let token = try DeviceToken(text)
        if apps[index].gateway != nil { try GatewayRules.check(token) }
        return token
    }

    private func address(
        _ notification: inout Notification, of job: Job, to channelID: ByteBuffer, _ identity: ByteBuffer
    ) throws(Unsendable) {
        do throws(BroadcastTarget.Invalid) {
            notification.broadcast = try BroadcastTarget(channelID: channelID, topic: notification.topic)
        } catch {
            throw Unsendable(reason: error.reason.rawValue, detail: "\(error)")
        }
        notification.apnsID =
            job.apnsID.flatMap { APNSID(job.text($0).readableBytesView) }
            ?? APNSID(jobID: identity, token: channelID)
    }

    private func payload(of job: Job, limit: Int) throws(Unsendable) -> ByteBuffer {
        guard job.makesPayload else { return job.bytes(job.payload) }
        do throws(JobError) {
            return try job.payload(limit: limit)
        } catch {
            throw Unsendable(reason: error.reason, detail: "\(error)")
        }
    }

    private func pushType(of job: Job) throws(Unsendable) -> PushType {
        guard let field = job.pushType else { return .inferred(for: job) }
        let text = job.text(field)
        guard let type = text.withUnsafeReadableBytes({ PushType(bytes: $0) }) else {
            let known = PushType.allCases.map(\.rawValue).joined(separator: ", ")
            throw Unsendable(
                reason: APNSReason.invalidPushType.rawValue, detail: "the job's `push_type` is none of \(known)")
        }
        return type
    }
}

/// Why a job that is well-formed cannot be sent.
struct Unsendable: Error {
    var reason: String
    var detail: String
}

extension Job {
    /// `apns-expiration` in seconds since 1970; `nil` where the job does not say.
    func expirationSecond(firstSeen: Int64) -> Int64? {
        switch expiration {
        case nil: nil
        case .epoch(let second): second
        case .after(let seconds): (enqueuedAt ?? firstSeen) / 1000 + seconds
        }
    }
}
