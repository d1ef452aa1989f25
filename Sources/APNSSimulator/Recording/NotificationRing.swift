package struct NotificationFilter: Equatable, Sendable {
    /// Selects notifications with a higher number in the recording.
    package var after: UInt64 = 0
    /// Selects notifications for this device token, in either case.
    package var token: String? { didSet { token = token?.lowercased() } }
    /// True to select accepted notifications, false for refused ones, nil for both.
    package var accepted: Bool?
    /// The maximum number of notifications; the oldest come first.
    package var limit = 1000

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
        package let sequence: UInt64
        package let notification: ReceivedNotification
    }

    package var entries: [Entry] = []
    /// The value of ``NotificationFilter/after`` for the next request.
    package var last: UInt64
    /// The number of notifications after ``NotificationFilter/after`` that newer notifications have replaced.
    package var overwritten: UInt64
}

/// A ring buffer of the most recent notifications, numbered in the order of arrival.
struct NotificationRing: Sendable {
    let limit: Int
    /// Deleted entries are `nil`, so that the numbers have no gaps.
    private var entries: [NotificationPage.Entry?] = []
    private var deleted = 0
    /// The index of the oldest entry once the ring is full.
    private var start = 0
    private var clearedThrough: UInt64 = 0
    /// The number of the newest notification; 0 if there was none yet.
    private(set) var newest: UInt64 = 0

    /// - Parameter limit: the maximum number of notifications, at least 1.
    init(limit: Int) { self.limit = max(1, limit) }

    var count: Int { entries.count - deleted }

    /// - Returns: the notification's number.
    mutating func append(_ notification: ReceivedNotification) -> UInt64 {
        newest += 1
        let entry = NotificationPage.Entry(sequence: newest, notification: notification)
        if entries.count < limit {
            entries.append(entry)
        } else {
            if entries[start] == nil { deleted -= 1 }
            entries[start] = entry
            start = (start + 1) % limit
        }
        return newest
    }

    /// Removes all notifications; their numbers are not reused.
    mutating func clear() {
        entries = []
        deleted = 0
        start = 0
        clearedThrough = newest
    }

    /// - Returns: false if no notification with this number is kept.
    mutating func remove(_ sequence: UInt64) -> Bool {
        guard sequence <= newest, newest - sequence < UInt64(entries.count) else { return false }
        let index = (start + entries.count - 1 - Int(newest - sequence)) % entries.count
        guard entries[index] != nil else { return false }
        entries[index] = nil
        deleted += 1
        return true
    }

    func newest(before sequence: UInt64, atMost limit: Int) -> [NotificationPage.Entry] {
        // Deleted entries keep their places, so positions follow from the numbers.
        let excluded = sequence > newest ? 0 : newest - sequence + 1
        guard excluded < UInt64(entries.count) else { return [] }
        let end = entries.count - Int(excluded)
        return Array((0..<end).reversed().lazy.compactMap { entries[(start + $0) % entries.count] }.prefix(limit))
    }

    func page(_ filter: NotificationFilter) -> NotificationPage {
        let oldest = newest - UInt64(entries.count) + 1
        let known = max(filter.after, clearedThrough)
        var page = NotificationPage(last: newest, overwritten: oldest > known ? oldest - 1 - known : 0)
        // Deleted entries keep their places, so the first entry is found without a search.
        let skipped = filter.after >= oldest ? Int(clamping: filter.after - oldest + 1) : 0
        guard skipped < entries.count else { return page }
        for offset in skipped..<entries.count {
            guard let entry = entries[(start + offset) % entries.count] else { continue }
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
