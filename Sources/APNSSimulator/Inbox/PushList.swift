import WebPages

/// The pushes of a page of the inbox, newest first.
struct PushList {
    /// The number of notifications that are searched for earlier attempts of those on the page.
    private static let attemptDepth = 20_000

    private struct Row {
        let entry: NotificationPage.Entry
        /// The number of earlier attempts.
        var earlier = 0
    }

    private let filter: InboxFilter
    private let forms: InboxForms
    private let rows: [Row]
    /// True if there are older pushes.
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

    /// The list; `nil` without any push.
    var html: HTML? {
        guard !rows.isEmpty else { return nil }
        return """
            <ol class="pushes" data-rows>\(rows.map(item))</ol>
            \(pager)
            """
    }

    /// The buttons for a search that found one device only.
    var tools: HTML {
        guard !filter.token.isEmpty, let first = rows.first?.entry.notification, let token = first.token,
            rows.allSatisfy({ $0.entry.notification.token == token })
        else { return "" }
        return forms.buttons(first)
    }

    private var pager: HTML {
        var (newest, older) = (filter, filter)
        newest.before = nil
        older.before = rows.last?.entry.sequence
        return """
            <nav class="pager" aria-label="Parts of the list">\
            \(if: filter.before != nil, "<a href=\"\(newest.path)\">Newest</a>")\
            \(if: hasOlder, "<a rel=\"next\" href=\"\(older.path)\">Older</a>")</nav>
            """
    }

    private func item(_ row: Row) -> HTML {
        let (sequence, notification) = (row.entry.sequence, row.entry.notification)
        return """
            <li id="push-\(sequence)">
            \(PushElements.device(notification))
            <div>
            <p>\(PushElements.answer(notification)) \(Elements.label(notification.preview.title))\
            \(if: notification.transport == .gateway, " \(Elements.label("gateway", .quiet))")\
            \(if: row.earlier > 0, " \(Elements.label("attempt \(row.earlier + 1)", .warning))")</p>
            <p class="muted"><a href="/inbox/\(sequence)">No. \(sequence)</a> \(PushElements.age(notification.time))\
            \(notification.delayText.map { ", answered after \($0)" as HTML })</p>
            <p>\(PushElements.target(notification)) <span class="muted">\(notification.topic)</span></p>
            \(forms.nextAnswers(notification, id: "next-\(sequence)"))
            \(forms.deletion(sequence))
            </div></li>\n
            """
    }
}
