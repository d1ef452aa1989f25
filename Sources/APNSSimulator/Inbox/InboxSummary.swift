import WebPages

/// The number of pushes with an answer.
struct AnswerCount: Equatable {
    /// The value of ``InboxFilter/answer``: a status, or `lost` for none.
    let answer: String
    let count: Int
}

/// The pushes to one device or channel.
struct DeviceSummary {
    /// The token, or the channel.
    let name: String
    let isChannel: Bool
    /// The newest push that was shown, or the newest of all.
    private(set) var newest: NotificationPage.Entry
    private(set) var received = 0
    private(set) var accepted = 0
    /// The number on the icon of each app, by its bundle identifier: the last badge that was accepted.
    private(set) var badges: [String: Int64] = [:]
    private(set) var apps: Set<String> = []

    fileprivate init(_ name: String, isChannel: Bool, newest: NotificationPage.Entry) {
        (self.name, self.isChannel, self.newest) = (name, isChannel, newest)
    }

    /// Adds a push that is older than those before it.
    fileprivate mutating func add(_ entry: NotificationPage.Entry) {
        let notification = entry.notification
        if accepted == 0, notification.accepted { newest = entry }
        received += 1
        guard notification.accepted else { return }
        accepted += 1
        guard let topic = notification.topic else { return }
        let app = PushPreview.bundle(ofTopic: topic)
        apps.insert(app)
        guard badges[app] == nil, notification.mayHaveBadge else { return }
        let preview = notification.preview
        if [.alert, .background, .unknown].contains(preview.kind), let badge = preview.badge { badges[app] = badge }
    }
}

/// A Live Activity: its states, from its start to its end.
struct ActivitySummary {
    /// A push to the activity.
    struct Update {
        let entry: NotificationPage.Entry
        let event: String?
        let timestamp: Int64?
        /// The reason why the device does not show this state; nil if it was shown.
        let omission: String?
    }

    /// The token of the device or the activity, or the channel.
    let name: String
    let isChannel: Bool
    let topic: String?
    /// Newest first.
    private(set) var updates: [Update]

    /// The state on the device; nil if every push was refused.
    var shown: Update? { updates.first { $0.omission == nil } }
    var isEnded: Bool { shown?.event == "end" }

    fileprivate init(_ name: String, isChannel: Bool, topic: String?) {
        (self.name, self.isChannel, self.topic, updates) = (name, isChannel, topic, [])
    }

    /// Adds a push that is newer than those before it.
    fileprivate mutating func add(_ entry: NotificationPage.Entry, _ preview: PushPreview) {
        let omission: String? =
            if !entry.notification.accepted {
                "not shown: \(entry.notification.answerText)"
            } else if isEnded {
                "ignored: the activity had ended"
            } else if let timestamp = preview.timestamp, let known = shown?.timestamp, timestamp < known {
                "ignored: older timestamp"
            } else {
                nil
            }
        updates.insert(
            Update(entry: entry, event: preview.event, timestamp: preview.timestamp, omission: omission), at: 0)
    }
}

extension Recorder {
    /// Returns the number of pushes by answer that match a filter, whatever its answer.
    func answers(_ filter: InboxFilter) -> (total: Int, answers: [AnswerCount]) {
        var filter = filter
        filter.answer = ""
        var counts: [String: Int] = [:]
        forEach { entry in
            if filter.matches(entry.notification) { counts[entry.notification.answerKey, default: 0] += 1 }
            return true
        }
        // Accepted ones of the gateway (0) and statuses in their order, and those without an answer at the end.
        let order = { (answer: String) in Int(answer) ?? .max }
        let answers = counts.map { AnswerCount(answer: $0.key, count: $0.value) }
        return (counts.values.reduce(0, +), answers.sorted { order($0.answer) < order($1.answer) })
    }

    /// Returns the devices and channels whose pushes match a filter, the one with the newest push first.
    /// - Parameter limit: the maximum number of devices.
    func devices(_ filter: InboxFilter, atMost limit: Int) -> (devices: [DeviceSummary], total: Int) {
        var devices: [DeviceSummary] = []
        var indexes: [String: Int] = [:]
        forEach { entry in
            let notification = entry.notification
            guard let name = notification.token ?? notification.channel, filter.matches(notification) else {
                return true
            }
            // Tokens and channels do not share names: a token is hex digits, a channel base64.
            let key = (notification.token == nil ? "c" : "t") + name
            if let index = indexes[key] {
                if index < limit { devices[index].add(entry) }
            } else {
                indexes[key] = indexes.count
                guard devices.count < limit else { return true }
                devices.append(DeviceSummary(name, isChannel: notification.token == nil, newest: entry))
                devices[devices.count - 1].add(entry)
            }
            return true
        }
        return (devices, indexes.count)
    }

    /// Returns the Live Activities whose pushes match a filter, the one with the newest push first.
    ///
    /// A `start` begins another activity, because many activities can be started with the same token.
    func activities(_ filter: InboxFilter) -> [ActivitySummary] {
        var entries: [(entry: NotificationPage.Entry, preview: PushPreview)] = []
        forEach { entry in
            guard entry.notification.mayBeActivity else { return true }
            let preview = entry.notification.preview
            if preview.kind == .liveactivity, filter.matches(entry.notification) { entries.append((entry, preview)) }
            return true
        }
        var activities: [ActivitySummary] = []
        var current: [String: Int] = [:]
        for (entry, preview) in entries.reversed() {
            let notification = entry.notification
            guard let name = notification.token ?? notification.channel else { continue }
            let key = "\(name) \(notification.topic ?? "")"
            if preview.event == "start" || current[key] == nil {
                current[key] = activities.count
                activities.append(
                    ActivitySummary(name, isChannel: notification.token == nil, topic: notification.topic))
            }
            if let index = current[key] { activities[index].add(entry, preview) }
        }
        return activities.sorted {
            ($0.updates.first?.entry.sequence ?? 0) > ($1.updates.first?.entry.sequence ?? 0)
        }
    }
}

extension ReceivedNotification {
    /// The value of ``InboxFilter/answer`` that selects pushes with this answer.
    var answerKey: String {
        guard case .answered(let status, _) = outcome else { return "lost" }
        return "\(status)"
    }

    /// The answer if the notification reached no device.
    var refusal: String? { accepted ? nil : answerText }

    /// False if the payload certainly has no badge, which is much faster to find out than the badge.
    fileprivate var mayHaveBadge: Bool { payload.contains(UInt8(ascii: "\\")) || payload.contains(Array("badge".utf8)) }

    fileprivate var mayBeActivity: Bool { pushType == nil || pushType == "liveactivity" }
}

/// A push as a fixture of a test.
extension ReceivedNotification {
    /// The headers of the request, or the fields of the gateway's frame, as received.
    var fields: [(name: String, value: String)] {
        let malformed = malformedHeaders
        let all: [(String, String?)] =
            transport == .http2
            ? [
                ("apns-topic", topic), ("apns-push-type", pushType),
                ("apns-priority", malformed["apns-priority"] ?? priority.map { "\($0)" }),
                ("apns-expiration", malformed["apns-expiration"] ?? expiration.map { "\($0)" }),
                ("apns-collapse-id", malformed["apns-collapse-id"] ?? collapseID), ("apns-channel-id", channel),
                (channel == nil ? "apns-id" : "apns-request-id", malformed["apns-id"] ?? apnsID),
            ]
            : [
                ("identifier", identifier.map { "\($0)" }), ("priority", priority.map { "\($0)" }),
                ("expiration", expiration.map { "\($0)" }), ("topic of the certificate", topic),
            ]
        return all.compactMap { name, value in value.map { (name, $0) } }
    }

    /// A JSON object with `transport`, `token`, `headers`, the `payload` as received, and the `answer`.
    var fixture: [UInt8] {
        var object = JSONObjectWriter()
        object.member("transport", transport.rawValue)
        object.member("request", request)
        object.member("token", token)
        object.member("channel", channel)
        object.member("headers", Dictionary(fields.map { ($0.name, $0.value) }) { first, _ in first })
        write(payloadInto: &object)
        var answer = JSONObjectWriter()
        answer.member("accepted", accepted)
        if case .answered(let status, let reason) = outcome {
            answer.member("status", status)
            answer.member("reason", reason)
        } else {
            answer.member("lost", answerText)
        }
        object.member("answer", json: answer.finished)
        return object.finished + [UInt8(ascii: "\n")]
    }
}
