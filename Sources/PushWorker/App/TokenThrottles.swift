import NIOCore

/// The device tokens that APNs throttles (429 `TooManyRequests`), and the order of the notifications that wait for
/// them. No I/O.
///
/// All times are in milliseconds of Redis' clock. The first notification for a throttled token is tried again at the token's time. Later
/// notifications queue behind it at short intervals, and are tried one at a time until one is delivered.
struct TokenThrottles {
    /// The interval between notifications that wait for the same token.
    static let spacing: Int64 = 250
    /// The maximum number of throttled tokens that are tracked. Notifications for further tokens are tried at once.
    static let maximumCount = 10_000

    private struct Throttle {
        /// The earliest time of another try.
        var until: Int64
        /// The due time of the last notification that waits for the token.
        var tail: Int64
        /// Until this time a try counts as in progress. Its notification may have been deferred for another reason since.
        var tryingUntil: Int64 = 0
    }

    private static let longestTry: Int64 = 60_000
    /// The maximum pause that is believed if another lane reports it. A longer one shows that a clock was set back.
    private static let longestPause: Int64 = 3_600_000

    private var throttles: [ByteBuffer: Throttle] = [:]

    var isEmpty: Bool { throttles.isEmpty }
    var count: Int { throttles.count }

    /// Decides if a notification for a token is sent now.
    /// - Parameter isReturning: true if the notification waited before, so that its turn has come.
    /// - Returns: `nil` to send it, or the time of its next try.
    mutating func nextTry(_ token: ByteBuffer, isReturning: Bool, now: Int64) -> Int64? {
        guard var throttle = throttles[token] else { return nil }
        let isTrying = now < throttle.tryingUntil
        if now >= throttle.until, now >= throttle.tail, !isTrying {
            throttles[token] = nil
            return nil
        }
        if now >= throttle.until, isReturning, !isTrying {
            throttle.tryingUntil = now + Self.longestTry
            throttles[token] = throttle
            return nil
        }
        let due = max(throttle.tail, throttle.until, now) + Self.spacing
        throttle.tail = due
        throttles[token] = throttle
        return due
    }

    /// Records that APNs throttled a token, and returns the time of the notification's next try.
    /// - Parameter retryAt: the time of the next try if no other notification waited for the token.
    mutating func recordThrottle(_ token: ByteBuffer, retryAt: Int64, now: Int64) -> Int64 {
        guard var throttle = throttles[token] else {
            if throttles.count >= Self.maximumCount { forget(before: now) }
            guard throttles.count < Self.maximumCount else { return retryAt }
            // A copy, because the token is a part of a claim, which would otherwise be kept as long as the throttle.
            throttles[ByteBuffer(bytes: token.readableBytesView)] = Throttle(until: retryAt, tail: retryAt)
            return retryAt
        }
        defer { throttles[token] = throttle }
        if now < throttle.tryingUntil || now >= throttle.until {
            // The notification that was tried stays first, and the waiting ones follow it.
            throttle.tryingUntil = 0
            throttle.until = retryAt
            throttle.tail = max(throttle.tail, retryAt)
            return retryAt
        }
        // Several notifications for the token were in flight together, and this is not the first of them to be throttled.
        throttle.tail = max(throttle.tail, retryAt) + Self.spacing
        return throttle.tail
    }

    /// Records that a notification for the token ended without being throttled.
    mutating func recordEnd(_ token: ByteBuffer, now: Int64) {
        guard var throttle = throttles[token] else { return }
        throttle.tryingUntil = 0
        throttles[token] = now >= throttle.tail && now >= throttle.until ? nil : throttle
    }

    /// Records that another lane has reported a token as throttled.
    mutating func recordReport(_ token: ByteBuffer, until: Int64, now: Int64) {
        guard until > now, until - now <= Self.longestPause, throttles[token] == nil,
            throttles.count < Self.maximumCount
        else { return }
        throttles[token] = Throttle(until: until, tail: until)
    }

    /// Forgets the tokens without waiting notifications.
    mutating func forget(before now: Int64) {
        throttles = throttles.filter { $0.value.until > now || $0.value.tail > now || $0.value.tryingUntil > now }
    }
}
