/// Which recorded notifications are asked for.
package struct NotificationFilter: Equatable, Sendable {
    /// Only those with a higher number in the recording.
    package var after: UInt64 = 0
    /// Only those for this device token, in either case.
    package var token: String? { didSet { token = token?.lowercased() } }
    /// Only those that were accepted, or only those that were not.
    package var accepted: Bool?
    /// No more than so many, the oldest first.
    package var limit = 1000

    /// All of them, a thousand at a time.
    package init() {}

    func matches(_ notification: ReceivedNotification) -> Bool {
        if let accepted, notification.accepted != accepted { return false }
        if let token, notification.token != token { return false }
        return true
    }
}

/// Recorded notifications, in the order of their arrival.
package struct NotificationPage: Sendable {
    /// A notification and its number in the recording, from 1.
    package struct Entry: Equatable, Sendable {
        /// Its number.
        package let sequence: UInt64
        /// The notification.
        package let notification: ReceivedNotification
    }

    /// Those that were asked for.
    package var entries: [Entry] = []
    /// The value of ``NotificationFilter/after`` for the next request.
    package var last: UInt64
    /// How many that came after ``NotificationFilter/after`` are no longer kept, because newer ones took their place.
    package var overwritten: UInt64
}

/// The last so many notifications, numbered as they come.
struct NotificationRing: Sendable {
    private let limit: Int
    private var entries: [NotificationPage.Entry] = []
    /// Where the oldest lies, once there are as many as there may be.
    private var start = 0
    private var clearedThrough: UInt64 = 0
    /// The number of the newest; 0 when there was none yet.
    private(set) var newest: UInt64 = 0

    /// - Parameter limit: how many are kept; at least 1.
    init(limit: Int) { self.limit = max(1, limit) }

    var count: Int { entries.count }

    /// - Returns: the notification's number.
    mutating func append(_ notification: ReceivedNotification) -> UInt64 {
        newest += 1
        let entry = NotificationPage.Entry(sequence: newest, notification: notification)
        if entries.count < limit {
            entries.append(entry)
        } else {
            entries[start] = entry
            start = (start + 1) % limit
        }
        return newest
    }

    /// Forgets all of them; their numbers do not come again.
    mutating func clear() {
        entries = []
        start = 0
        clearedThrough = newest
    }

    /// Returns the newest entries before a number, newest first.
    func newest(before sequence: UInt64, atMost limit: Int) -> [NotificationPage.Entry] {
        // Their numbers have no gaps.
        let excluded = sequence > newest ? 0 : newest - sequence + 1
        guard excluded < UInt64(entries.count) else { return [] }
        let end = entries.count - Int(excluded)
        return (max(0, end - limit)..<end).reversed().map { entries[(start + $0) % entries.count] }
    }

    func page(_ filter: NotificationFilter) -> NotificationPage {
        let oldest = newest - UInt64(entries.count) + 1
        let known = max(filter.after, clearedThrough)
        var page = NotificationPage(last: newest, overwritten: oldest > known ? oldest - 1 - known : 0)
        // Their numbers have no gaps, so the first one asked for is found without a search.
        let skipped = filter.after >= oldest ? Int(clamping: filter.after - oldest + 1) : 0
        guard skipped < entries.count else { return page }
        for offset in skipped..<entries.count {
            let entry = entries[(start + offset) % entries.count]
            guard filter.matches(entry.notification) else { continue }
            if page.entries.count >= filter.limit {
                page.last = page.entries.last?.sequence ?? filter.after
                break
            }
            page.entries.append(entry)
        }
        return page
    }
}
