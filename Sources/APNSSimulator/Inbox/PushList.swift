import WebPages

/// The pushes of a page of the inbox, newest first.
struct PushList {
    /// The number of notifications to search for earlier attempts.
    private static let attemptDepth = 20_000

    private struct Row {
        let entry: NotificationPage.Entry
        var earlier = 0
    }

    private let filter: InboxFilter
    private let forms: InboxForms
    private let rows: [Row]
    private let hasOlder: Bool

    init(_ recorder: Recorder, _ filter: InboxFilter) {
        (self.filter, forms) = (filter, InboxForms(query: filter.query))
        var (rows, hasOlder, searched) = ([] as [Row], false, 0)
        var byID: [String: [Int]] = [:]
        var byToken: [String: [Int]] = [:]
        recorder.forEach(before: filter.before ?? .max) { entry in
            searched += 1
            let notification = entry.notification
            let candidates =
                (notification.apnsID.flatMap { byID[$0] } ?? []) + (notification.token.flatMap { byToken[$0] } ?? [])
            for index in Set(candidates) where notification.isAttempt(of: rows[index].entry.notification) {
                rows[index].earlier += 1
            }
            if rows.count < InboxFilter.pageSize || !hasOlder, filter.matches(notification) {
                if rows.count < InboxFilter.pageSize {
                    if let id = notification.apnsID { byID[id, default: []].append(rows.count) }
                    if let token = notification.token { byToken[token, default: []].append(rows.count) }
                    rows.append(Row(entry: entry))
                } else {
                    hasOlder = true
                }
            }
            return !hasOlder || searched < Self.attemptDepth
        }
        (self.rows, self.hasOlder) = (rows, hasOlder)
    }

    /// The list, and the preview of one push; `nil` if there is no push.
    var html: HTML? {
        guard !rows.isEmpty else { return nil }
        return """
            <div class="inbox"><div><ol class="pushes dense" data-rows>\(rows.map(item))</ol>
            \(pager)</div>\(preview)</div>
            """
    }

    /// The number of the push in the preview: the one in the URL, or the newest.
    private var opened: UInt64? { filter.open ?? rows.first?.entry.sequence }

    private var preview: HTML {
        guard let row = rows.first(where: { $0.entry.sequence == opened }) else { return "" }
        let (sequence, notification) = (row.entry.sequence, row.entry.notification)
        return """
            <aside class="preview\(if: filter.open == nil, " implicit")" aria-label="Preview">
            \(PushElements.device(notification))
            <p>\(labels(row))</p>
            <p>\(PushElements.target(notification)) <span class="muted">\(notification.topic)</span></p>
            <p class="muted"><a href="/inbox/\(sequence)">No. \(sequence)</a>, with its headers and payload</p>
            \(forms.nextAnswers(notification, id: "next-\(sequence)"))
            </aside>
            """
    }

    private func labels(_ row: Row) -> HTML {
        let notification = row.entry.notification
        return """
            \(PushElements.answer(notification)) \(Elements.label(notification.preview.title))\
            \(if: notification.transport == .gateway, " \(Elements.label("gateway", .quiet))")\
            \(if: row.earlier > 0, " \(Elements.label("attempt \(row.earlier + 1)", .warning))")\
            \(notification.delayText.map { " \(Elements.label("answered after \($0)", .quiet))" as HTML })
            """
    }

    /// The buttons for the next answer, if the search found only one device.
    var tools: HTML {
        guard !filter.token.isEmpty, let first = rows.first?.entry.notification, let token = first.token,
            rows.allSatisfy({ $0.entry.notification.token == token })
        else { return "" }
        return forms.buttons(first)
    }

    private var pager: HTML {
        var (newest, older) = (filter, filter)
        (newest.before, newest.open, older.open) = (nil, nil, nil)
        older.before = rows.last?.entry.sequence
        return """
            <nav class="pager" aria-label="Parts of the list">\
            \(if: filter.before != nil, "<a href=\"\(newest.path)\">Newest</a>")\
            \(if: hasOlder, "<a rel=\"next\" href=\"\(older.path)\">Older</a>")</nav>
            """
    }

    private func item(_ row: Row) -> HTML {
        let (sequence, notification) = (row.entry.sequence, row.entry.notification)
        var open = filter
        open.open = sequence
        let subject = notification.preview.subject
        return """
            <li id="push-\(sequence)"\(if: sequence == opened, " class=\"opened\"")>
            <a class="subject" href="\(open.path)"><strong>\(subject.title)</strong> \(subject.text)</a>
            <span class="labels">\(labels(row))</span>
            <span class="target">\(PushElements.target(notification))</span>
            <span class="muted when">\(PushElements.age(notification.time))</span>
            \(forms.deletion(sequence, "✕"))
            </li>\n
            """
    }
}
