import PushJob
import WebPages

struct AnswerCount: Equatable {
    /// The value of ``InboxFilter/answer``: a status, or `lost` for a push without an answer.
    let answer: String
    let count: Int
}

/// The pushes to one device or channel.
struct DeviceSummary {
    /// The token, or the channel.
    let name: String
    let isChannel: Bool
    /// The newest accepted push, or the newest push if no push was accepted.
    private(set) var newest: NotificationPage.Entry
    private(set) var received = 0
    private(set) var accepted = 0
    /// The last accepted badge of each app, by bundle identifier.
    private(set) var badges: [String: Int64] = [:]
    private(set) var apps: Set<String> = []

    /// Adds a push. Pushes must be added from the newest to the oldest.
    fileprivate mutating func add(_ entry: NotificationPage.Entry) {
        let notification = entry.notification
        if accepted == 0, notification.accepted { newest = entry }
        received += 1
        guard notification.accepted else { return }
        accepted += 1
        guard let topic = notification.topic else { return }
        let app = PushType.parts(ofTopic: topic).bundle
        apps.insert(app)
        guard badges[app] == nil, Self.mayHaveBadge(notification) else { return }
        let preview = notification.preview
        if [.alert, .background, .other].contains(preview.kind), let badge = preview.badge { badges[app] = badge }
    }

    /// Returns false if the payload certainly has no badge. This is much faster than reading the badge.
    private static func mayHaveBadge(_ notification: ReceivedNotification) -> Bool {
        notification.payload.contains(UInt8(ascii: "\\")) || notification.payload.contains(Array("badge".utf8))
    }
}

/// A Live Activity, from its start to its end.
struct ActivitySummary {
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
    private(set) var updates: [Update] = []

    /// The state on the device; nil if every push was refused.
    var shown: Update? { updates.first { $0.omission == nil } }
    var isEnded: Bool { shown?.event == "end" }

    /// Adds a push. Pushes must be added from the oldest to the newest.
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

/// The recorded pushes that match a filter, by answer, by device and by Live Activity.
struct InboxSummary {
    private let recorder: Recorder
    private let filter: InboxFilter

    init(_ recorder: Recorder, _ filter: InboxFilter) { (self.recorder, self.filter) = (recorder, filter) }

    /// The number of pushes by answer. Ignores the answer in the filter.
    var answers: (total: Int, answers: [AnswerCount]) {
        var filter = filter
        filter.answer = ""
        var counts: [String: Int] = [:]
        recorder.forEach { entry in
            if filter.matches(entry.notification) { counts[entry.notification.answerKey, default: 0] += 1 }
            return true
        }
        // Accepted pushes of the gateway (0) come first, then statuses in order. Pushes without an answer come last.
        let order = { (answer: String) in Int(answer) ?? .max }
        let answers = counts.map { AnswerCount(answer: $0.key, count: $0.value) }
        return (counts.values.reduce(0, +), answers.sorted { order($0.answer) < order($1.answer) })
    }

    /// Returns the devices and channels of the pushes that match the filter, ordered by their newest push.
    /// - Parameter limit: the maximum number of devices.
    func devices(atMost limit: Int) -> (devices: [DeviceSummary], total: Int) {
        var devices: [DeviceSummary] = []
        var indexes: [String: Int] = [:]
        recorder.forEach { entry in
            let notification = entry.notification
            guard let name = notification.token ?? notification.channel, filter.matches(notification) else {
                return true
            }
            // Without a prefix, a channel in base64 could have the name of a token.
            let key = (notification.token == nil ? "c" : "t") + name
            if let index = indexes[key] {
                if index < limit { devices[index].add(entry) }
            } else {
                indexes[key] = indexes.count
                guard devices.count < limit else { return true }
                devices.append(DeviceSummary(name: name, isChannel: notification.token == nil, newest: entry))
                devices[devices.count - 1].add(entry)
            }
            return true
        }
        return (devices, indexes.count)
    }

    /// The Live Activities of the pushes that match the filter, ordered by their newest push.
    ///
    /// Each `start` begins an activity, because one token can start many activities.
    var activities: [ActivitySummary] {
        var entries: [(entry: NotificationPage.Entry, preview: PushPreview)] = []
        recorder.forEach { entry in
            let pushType = entry.notification.pushType
            guard pushType == nil || pushType == "liveactivity" else { return true }
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
                    ActivitySummary(name: name, isChannel: notification.token == nil, topic: notification.topic))
            }
            if let index = current[key] { activities[index].add(entry, preview) }
        }
        return activities.sorted {
            ($0.updates.first?.entry.sequence ?? 0) > ($1.updates.first?.entry.sequence ?? 0)
        }
    }
}

extension InboxSummary {
    /// The devices and channels; `nil` if there are none.
    var deviceList: HTML? {
        let (devices, total) = devices(atMost: InboxFilter.pageSize)
        guard !devices.isEmpty else { return nil }
        return """
            \(if: total > devices.count, "<p class=\"muted\">The newest \(devices.count) of \(total) devices.</p>")
            <ol class="pushes" data-rows>\(devices.map(item))</ol>
            """
    }

    private func item(_ device: DeviceSummary) -> HTML {
        let notification = device.newest.notification
        let refused = device.received - device.accepted
        let badges = device.apps.sorted().map { app -> (name: HTML, value: HTML?) in
            let badge = device.badges[app].map { $0 > 0 ? "\($0)" : "none" } ?? "never set"
            return ("\(app)", "badge <b>\(badge)</b>")
        }
        return """
            <li>
            \(PushElements.device(notification))
            <div>
            <p>\(PushElements.target(notification))</p>
            <p>\(device.received) received\(if: refused > 0, ", <b>\(refused) refused</b>")</p>
            \(if: !badges.isEmpty, Elements.facts(badges))
            <p class="muted">Newest: <a href="/inbox/\(device.newest.sequence)">No. \(device.newest.sequence)</a> \
            \(PushElements.age(notification.time))</p>
            </div></li>\n
            """
    }

    /// The Live Activities; `nil` if there are none.
    var activityList: HTML? {
        let all = activities
        guard !all.isEmpty else { return nil }
        let activities = all.prefix(InboxFilter.pageSize)
        let part: HTML = "<p class=\"muted\">The newest \(activities.count) of \(all.count) activities.</p>"
        return """
            \(if: all.count > activities.count, part)
            <ol class="pushes" data-rows>\(activities.compactMap(item))</ol>
            """
    }

    private func item(_ activity: ActivitySummary) -> HTML? {
        guard let newest = activity.shown ?? activity.updates.first, let first = activity.updates.last else {
            return nil
        }
        let notification = newest.entry.notification
        let count = activity.updates.count
        let state: HTML =
            if activity.shown == nil {
                Elements.label("not shown", .bad)
            } else if activity.isEnded {
                Elements.label("ended", .quiet)
            } else {
                Elements.label("active", .good)
            }
        let kept = activity.updates.prefix(100)
        let history = kept.map { update -> HTML in
            let other = update.entry
            return """
                <li><a href="/inbox/\(other.sequence)">No. \(other.sequence)</a> \(update.event ?? "no event") \
                \(PushElements.age(other.notification.time)) \(PushElements.answer(other.notification))\
                \(update.omission.map { " <span class=\"muted\">\($0)</span>" as HTML })</li>
                """
        }
        return """
            <li id="activity-\(first.entry.sequence)">
            <div class="device\(if: activity.shown == nil, " refused")">\
            \(notification.preview.banner(refusal: notification.refusal))\
            </div>
            <div>
            <p>\(state) \(PushElements.target(notification)) <span class="muted">\(activity.topic)</span></p>
            <p class="muted">State of <a href="/inbox/\(newest.entry.sequence)">No. \(newest.entry.sequence)</a> \
            \(PushElements.age(notification.time))</p>
            <details id="history-\(first.entry.sequence)"><summary>\(count) push\(if: count != 1, "es")</summary>
            <ol class="history">\(history)</ol>
            \(if: count > kept.count, "<p class=\"muted\">and \(count - kept.count) older ones</p>")</details>
            </div></li>\n
            """
    }
}
