import WebPages

struct PushPage {
    let service: SimulatedService
    let recorder: Recorder
    let entry: NotificationPage.Entry

    private var sequence: UInt64 { entry.sequence }
    private var notification: ReceivedNotification { entry.notification }

    var html: HTML {
        let forms = InboxForms(query: [("push", "\(sequence)")])
        let clock = String(EpochTime.clock(milliseconds: notification.time).prefix(5))
        return """
            \(Elements.live("neighbours", neighbours))
            <div class="columns">
            <div>\(notification.preview.html(clock: clock, refusal: notification.refusal))</div>
            <div>\(facts)</div>
            </div>
            <div class="actions"><a class="button" href="/inbox/\(sequence)/fixture" download>Export as a fixture</a>\
            \(InboxForms(query: []).deletion(sequence))</div>
            \(Elements.live("job", job))
            \(Elements.live("next", forms.buttons(notification)))
            <h2>Headers</h2>
            \(headers)
            <h2>Payload</h2>
            \(payload)
            \(Elements.live("attempts", attempts))
            \(Elements.live("rules", forms.rules(service)))
            """
    }

    private var neighbours: HTML {
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

    /// The link to the job of the push: the dashboard's page of the device, or a command that prints the device's results.
    private var job: HTML {
        guard let token = notification.token, SimulatedToken(hex: token) != nil else { return "" }
        guard let dashboard = service.dashboard else {
            return """
                <p class="muted">Its job: \(Elements.command("apns-worker results --token \(token) --newest-first"))</p>
                """
        }
        return "<p><a href=\"\(dashboard)/devices/\(token)\">Jobs and results of this device in the dashboard</a></p>"
    }

    private var facts: HTML {
        let milliseconds = EpochTime.clock(milliseconds: notification.time).suffix(4)
        let received = EpochTime.text(seconds: notification.time / 1000).replacing(" UTC", with: "")
        return Elements.facts([
            ("Answer", PushElements.answer(notification)),
            ("Token", notification.token.map { "<span class=\"mono\">\($0)</span>" }),
            ("Channel", notification.channel.map { "\($0)" }),
            ("Topic", notification.topic.map { "\($0)" }),
            ("Push type", "\(notification.preview.title)"),
            (
                "Received",
                "\(PushElements.age(notification.time)), \(received + milliseconds) UTC"
            ),
            (
                "Answered",
                notification.hasAnswer ? "\(notification.delayText.map { "after \($0)" } ?? "at once")" : "never"
            ),
            ("Interface", notification.transport == .http2 ? "HTTP/2" : "binary gateway"),
            ("Connection", "\(notification.connection)"),
        ])
    }

    private var headers: HTML {
        let names = (notification.request.map { [("request", $0)] } ?? []) + notification.fields
        let rows = names.map { name, value -> [HTML] in
            ["<code>\(name)</code>", "<code>\(value)</code>\(note(name, value, notification.malformedHeaders))"]
        }
        return Elements.list(
            "Headers", [.init("Name", .key), .init("Value")], rows, empty: Elements.empty("No headers."))
    }

    private func note(_ name: String, _ value: String, _ malformed: [String: String]) -> HTML {
        if malformed[name] != nil { return " \(Elements.label("malformed", .bad))" }
        guard name.hasSuffix("expiration"), let seconds = Int64(value) else { return "" }
        return " <span class=\"muted\">\(seconds == 0 ? "one attempt" : EpochTime.text(seconds: seconds))</span>"
    }

    private var payload: HTML {
        guard notification.payloadSize > 0 else { return "<p class=\"empty\">No payload.</p>" }
        let cut = notification.payloadSize - notification.payload.count
        return """
            <p class="muted">\(notification.payloadSize) bytes\
            \(if: cut > 0, ", of which the last \(cut) are not kept")</p>
            \(Elements.source(PayloadText.pretty(notification.payload), title: "Payload"))
            \(mistakes)
            """
    }

    /// Mistakes according to Apple's documentation. APNs accepts the payload nevertheless.
    private var mistakes: HTML {
        HTML(notification.mistakes.map { "<p class=\"notice\">\($0)</p>" })
    }

    /// The attempts to send the same notification, newest first.
    private var attempts: HTML {
        var rows: [[HTML]] = []
        var number = 0
        var found: [NotificationPage.Entry] = []
        recorder.forEach { other in
            if other.notification.isAttempt(of: entry.notification) || other.sequence == entry.sequence {
                number += 1
                if found.count < InboxFilter.pageSize { found.append(other) }
            }
            return true
        }
        for (index, other) in found.enumerated() {
            let isThis = other.sequence == entry.sequence
            rows.append([
                "\(number - index)",
                isThis ? "<b>this one</b>" : "<a href=\"/inbox/\(other.sequence)\">No. \(other.sequence)</a>",
                PushElements.age(other.notification.time), PushElements.answer(other.notification),
            ])
        }
        return """
            <h2>Attempts</h2>
            <p class="muted">With the same <code>apns-id</code>, or the same payload for the same token.</p>
            \(Elements.list(
                "Attempts",
                [.init("Attempt", .number), .init("Push", .key), .init("Received", .key), .init("Answer", .key)], rows,
                empty: Elements.empty("No attempts.")))
            """
    }
}
