import LegacyAPNS

/// The feedback service's record of one device that no longer has the app.
package struct FeedbackRecord: Equatable, Sendable {
    package var token: SimulatedToken
    /// The time when APNs found that the app was removed, in seconds since 1970.
    package var seconds: UInt32

    /// The record as it is sent: the time, the token's length, the token. Numbers are big-endian.
    ///
    /// Source: Apple, "Binary Provider API" (Local and Remote Notification Programming Guide, archived), "The Feedback
    /// Service".
    var bytes: [UInt8] {
        let token = token.bytes
        let length = withUnsafeBytes(of: UInt16(truncatingIfNeeded: token.count).bigEndian) { Array($0) }
        return withUnsafeBytes(of: seconds.bigEndian) { Array($0) } + length + token
    }

    /// Reads a file of records. A line has the device token's hex digits, a space, and the time in seconds since 1970. Empty lines are
    /// skipped.
    /// - Throws: ``SimulatorError`` with the number of the line, never with the token.
    package static func all(inFile text: String) throws(SimulatorError) -> [FeedbackRecord] {
        var records: [FeedbackRecord] = []
        for (index, line) in text.split(omittingEmptySubsequences: false, whereSeparator: \.isNewline)
            .enumerated()
        {
            let words = line.split { $0 == " " || $0 == "\t" }
            if words.isEmpty { continue }
            func mistake(_ problem: String) -> SimulatorError { SimulatorError("line \(index + 1): \(problem)") }
            guard words.count == 2 else { throw mistake("must be a device token, a space and seconds since 1970") }
            guard let token = SimulatedToken(feedback: words[0]) else {
                throw mistake("the device token must be \(SimulatedToken.feedbackForm)")
            }
            guard let seconds = UInt32(words[1]) else {
                throw mistake("the time must be seconds since 1970, not '\(words[1])'")
            }
            records.append(FeedbackRecord(token: token, seconds: seconds))
        }
        return records
    }
}

/// The feedback service's records, one per device, in the order of their addition.
struct FeedbackList: Sendable {
    private var times: [SimulatedToken: UInt32] = [:]
    private var order: [SimulatedToken] = []
    private var first = 0
    private let limit: Int

    /// - Parameter limit: the maximum number of waiting records. Beyond it, the oldest are dropped, because a client may never fetch them.
    init(limit: Int = 1_000_000) { self.limit = max(1, limit) }

    var count: Int { times.count }

    var waiting: [FeedbackRecord] {
        order[first...].compactMap { token in times[token].map { FeedbackRecord(token: token, seconds: $0) } }
    }

    /// Adds a device, or updates its time if it is waiting already.
    /// - Returns: true if the oldest record was dropped to make room.
    @discardableResult
    mutating func add(_ record: FeedbackRecord) -> Bool {
        guard times.updateValue(record.seconds, forKey: record.token) == nil else { return false }
        order.append(record.token)
        guard count > limit else { return false }
        return !take(1).isEmpty
    }

    /// Removes and returns the first records, at most `count`.
    mutating func take(_ count: Int) -> [FeedbackRecord] {
        let end = min(order.count, first + count)
        let records = order[first..<end].compactMap { token in
            times.removeValue(forKey: token).map { FeedbackRecord(token: token, seconds: $0) }
        }
        first = end
        // Compacts only if more than half of the list is removed. Otherwise, reading in small pieces would copy the list each time.
        if first > order.count / 2 {
            order.removeSubrange(..<first)
            first = 0
        }
        return records
    }
}
