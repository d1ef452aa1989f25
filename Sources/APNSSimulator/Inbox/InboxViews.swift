import WebPages

/// Ages of pushes.
enum InboxAge {
    /// Returns an age such as `5 s ago`; inbox.js has the same units.
    static func text(_ milliseconds: Int64, now: Int64) -> String {
        let seconds = max(0, now - milliseconds) / 1000
        switch seconds {
        case ..<120: return "\(seconds) s ago"
        case ..<7200: return "\(seconds / 60) min ago"
        case ..<172_800: return "\(seconds / 3600) h ago"
        default: return "\(seconds / 86_400) days ago"
        }
    }
}

// The views by device and by Live Activity, and what an empty inbox shows.
extension Inbox {
    /// The command that sends the first push. The token is an example.
    private static let firstPush = """
        apns-worker enqueue --token 00fc13adff785122b4ad28809a3420982341241421348097878e577c991de8f0 --alert Hello
        """

    /// The content without any push: how to send the first one, or how to see the others.
    func nothing(_ filter: InboxFilter) -> HTML {
        guard filter.isEmpty, filter.view != .activities else {
            return Elements.empty(
                filter.isEmpty ? "No Live Activity was received yet." : "Nothing matches.",
                "<p><a href=\"/\">Show all pushes</a></p>")
        }
        let commands: [HTML] =
            service.configuration.isInWorker
            ? ["<p>Send a push to this simulator:</p><p>\(Elements.command(Self.firstPush))</p>"]
            : [
                "<p>Write a job:</p><p>\(Elements.command(Self.firstPush))</p>",
                """
                <p>Start a worker that sends it here, with a signing key and the authority of this simulator \
                (<code>--write-certificates certs</code>):</p>\
                <p>\(Elements.command("apns-worker run --endpoint localhost:\(port) --ca certs/ca.pem"))</p>
                """,
            ]
        return Elements.empty("Nothing was received yet.", HTML(commands))
    }

    // MARK: Links

    /// The tabs of the views, and the answers as links that filter.
    func views(_ filter: InboxFilter) -> HTML {
        let counted = recorder.answers(filter)
        var answers = counted.answers
        func path(_ change: (inout InboxFilter) -> Void) -> String {
            var other = filter
            other.before = nil
            change(&other)
            return other.path
        }
        let views = InboxFilter.View.allCases.map { view in
            (title: view.title, path: path { $0.view = view }, isCurrent: filter.view == view, count: nil as Int?)
        }
        var pills = [
            (
                title: "any answer" as HTML, path: path { $0.answer = "" }, isCurrent: filter.answer.isEmpty,
                count: counted.total as Int?
            )
        ]
        if ["accepted", "refused"].contains(filter.answer) {
            pills.append((title: "\(filter.answer)", path: filter.path, isCurrent: true, count: nil))
        } else if !filter.answer.isEmpty, !answers.contains(where: { $0.answer == filter.answer }) {
            // A filter stays visible when its last push has been deleted.
            answers.append(AnswerCount(answer: filter.answer, count: 0))
        }
        pills += answers.map { one in
            let title: HTML =
                one.answer == "lost" ? "no answer" : one.answer == "0" ? "gateway: accepted" : "\(one.answer)"
            return (
                title: title, path: path { $0.answer = one.answer }, isCurrent: filter.answer == one.answer,
                count: one.count
            )
        }
        let isCounted = counted.total > 0 || !filter.answer.isEmpty
        return "\(Elements.tabs("View", views))\(if: isCounted, Elements.tabs("Answer", pills))"
    }

    /// The links to the push before and after a push.
    func neighbours(_ sequence: UInt64) -> HTML {
        var filter = NotificationFilter()
        (filter.after, filter.limit) = (sequence, 1)
        let newer = recorder.notifications(filter).entries.first?.sequence
        var older: UInt64?
        recorder.forEach(before: sequence) { entry in
            older = entry.sequence
            return false
        }
        return """
            <nav class="pager" aria-label="Pushes" data-neighbours data-newest="\(recorder.extent.newest)">\
            <a href="/">All pushes</a>\
            \(newer.map { "<a rel=\"prev\" href=\"/inbox/\($0)\">Newer: No. \($0)</a>" as HTML })\
            \(older.map { "<a rel=\"next\" href=\"/inbox/\($0)\">Older: No. \($0)</a>" as HTML })</nav>
            """
    }

    /// The way to the job of a push: the dashboard's page of the device, or the command that shows the same.
    func job(_ notification: ReceivedNotification) -> HTML {
        guard let token = notification.token, SimulatedToken(hex: token) != nil else { return "" }
        guard let dashboard = service.dashboard else {
            return """
                <p class="muted">Its job: \(Elements.command("apns-worker results --token \(token) --newest-first"))</p>
                """
        }
        return "<p><a href=\"\(dashboard)/devices/\(token)\">Jobs and results of this device in the dashboard</a></p>"
    }

    // MARK: By device

    func devices(_ filter: InboxFilter) -> HTML {
        let (devices, total) = recorder.devices(filter, atMost: InboxFilter.pageSize)
        guard !devices.isEmpty else { return nothing(filter) }
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
            <div class="device\(if: !notification.accepted, " refused")">\
            \(notification.preview.banner(when: age(notification.time), refusal: notification.refusal))</div>
            <div>
            <p>\(target(notification))</p>
            <p>\(device.received) received\(if: refused > 0, ", <b>\(refused) refused</b>")</p>
            \(if: !badges.isEmpty, Elements.facts(badges))
            <p class="muted">Newest: <a href="/inbox/\(device.newest.sequence)">No. \(device.newest.sequence)</a> \
            \(age(notification.time))</p>
            </div></li>\n
            """
    }

    // MARK: Live Activities

    func activities(_ filter: InboxFilter) -> HTML {
        let all = recorder.activities(filter)
        guard !all.isEmpty else { return nothing(filter) }
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
                \(age(other.notification.time)) \(answerLabel(other.notification))\
                \(update.omission.map { " <span class=\"muted\">\($0)</span>" as HTML })</li>
                """
        }
        return """
            <li id="activity-\(first.entry.sequence)">
            <div class="device\(if: activity.shown == nil, " refused")">\
            \(notification.preview.banner(refusal: notification.refusal))\
            </div>
            <div>
            <p>\(state) \(target(notification)) <span class="muted">\(activity.topic)</span></p>
            <p class="muted">State of <a href="/inbox/\(newest.entry.sequence)">No. \(newest.entry.sequence)</a> \
            \(age(notification.time))</p>
            <details id="history-\(first.entry.sequence)"><summary>\(count) push\(if: count != 1, "es")</summary>
            <ol class="history">\(history)</ol>
            \(if: count > kept.count, "<p class=\"muted\">and \(count - kept.count) older ones</p>")</details>
            </div></li>\n
            """
    }
}
