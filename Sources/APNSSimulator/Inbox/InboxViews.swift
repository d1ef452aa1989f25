import WebPages

// The views of the inbox by device and by Live Activity.
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
