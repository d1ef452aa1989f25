/// The feedback service's record of one device: the time since which the app is gone.
package struct FeedbackRecord: Equatable, Sendable {
    /// Longer tokens are none of the binary protocol's, in bytes.
    ///
    /// Source: Apple, "Binary Provider API" (Local and Remote Notification Programming Guide, archived): up to 100 bytes.
    static let maximumTokenLength = 100

    /// The device token.
    package var token: SimulatedToken
    /// When APNs found that the app is gone, in seconds since 1970.
    package var seconds: UInt32

    package init(token: SimulatedToken, seconds: UInt32) {
        self.token = token
        self.seconds = seconds
    }

    /// As it is served: the time, the token's length, the token; numbers big-endian.
    ///
    /// Source: Apple, "Binary Provider API" (Local and Remote Notification Programming Guide, archived), "The Feedback
    /// Service".
    var bytes: [UInt8] {
        let token = token.bytes
        let length = withUnsafeBytes(of: UInt16(truncatingIfNeeded: token.count).bigEndian) { Array($0) }
        return withUnsafeBytes(of: seconds.bigEndian) { Array($0) } + length + token
    }
}

/// The devices that the feedback service has to tell of, each once, in the order they were added.
struct FeedbackList: Sendable {
    private var times: [SimulatedToken: UInt32] = [:]
    private var order: [SimulatedToken] = []
    private var first = 0
    private let limit: Int

    /// - Parameter limit: how many may wait; the oldest are forgotten for newer ones, because nobody may ever ask for them.
    init(limit: Int = 1_000_000) { self.limit = max(1, limit) }

    /// How many wait to be served.
    var count: Int { times.count }

    /// Those that wait, in the order in which they are served.
    var waiting: [FeedbackRecord] {
        order[first...].compactMap { token in times[token].map { FeedbackRecord(token: token, seconds: $0) } }
    }

    /// Adds a device, or sets its time if it waits already.
    /// - Returns: true if the oldest one was forgotten instead.
    @discardableResult
    mutating func add(_ record: FeedbackRecord) -> Bool {
        guard times.updateValue(record.seconds, forKey: record.token) == nil else { return false }
        order.append(record.token)
        guard count > limit else { return false }
        return !take(1).isEmpty
    }

    /// Takes the first so many off the list, or as many as there are.
    mutating func take(_ count: Int) -> [FeedbackRecord] {
        let end = min(order.count, first + count)
        let records = order[first..<end].compactMap { token in
            times.removeValue(forKey: token).map { FeedbackRecord(token: token, seconds: $0) }
        }
        first = end
        // What was taken goes away when it is the larger part, so that a list taken in small pieces is not copied for each.
        if first > order.count / 2 {
            order.removeSubrange(..<first)
            first = 0
        }
        return records
    }
}

/// A text of feedback records: a line each, the device token's hex digits, a space, and the time in seconds since 1970.
package enum FeedbackFile {
    /// An error in a line.
    package struct Failure: Error, Equatable, CustomStringConvertible {
        /// Which line, from 1.
        package let line: Int
        /// The problem.
        package let problem: String

        package var description: String { "line \(line): \(problem)" }
    }

    /// Reads it; empty lines say nothing.
    /// - Throws: ``Failure`` with the number of the line, never with the token.
    package static func records(_ text: String) throws(Failure) -> [FeedbackRecord] {
        var records: [FeedbackRecord] = []
        for (index, line) in text.split(omittingEmptySubsequences: false, whereSeparator: \.isNewline)
            .enumerated()
        {
            let words = line.split { $0 == " " || $0 == "\t" }
            if words.isEmpty { continue }
            guard words.count == 2 else {
                throw Failure(line: index + 1, problem: "must be a device token, a space and seconds since 1970")
            }
            guard let token = SimulatedToken(hex: words[0]), token.byteCount <= FeedbackRecord.maximumTokenLength else {
                throw Failure(line: index + 1, problem: "the device token must be 64 to 200 hex digits, an even number")
            }
            guard let seconds = UInt32(words[1]) else {
                throw Failure(line: index + 1, problem: "the time must be seconds since 1970, not '\(words[1])'")
            }
            records.append(FeedbackRecord(token: token, seconds: seconds))
        }
        return records
    }
}
