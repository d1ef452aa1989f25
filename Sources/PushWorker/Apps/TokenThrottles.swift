import NIOCore

/// Device tokens that APNs has had enough of (429 `TooManyRequests`), and the order of what waits for them, without any I/O.
///
/// All times are in milliseconds of Redis' clock. A throttled token's first notification is tried again at its time; what
/// comes meanwhile waits behind it, a moment apart, and one at a time is tried until one is delivered.
struct TokenThrottles {
    enum Decision: Equatable {
        case send
        /// Not before this time.
        case wait(until: Int64)
    }

    /// The pause between notifications that wait for the same token.
    static let spacing: Int64 = 250
    /// Throttled tokens that are kept; more are simply tried.
    static let maximumCount = 10_000

    private struct Throttle {
        /// When the token may be tried again.
        var until: Int64
        /// When the last of those that wait for it is due.
        var tail: Int64
        /// Until when it counts that one is being tried; it may have been put off for another reason meanwhile.
        var tryingUntil: Int64 = 0
    }

    private static let longestTry: Int64 = 60_000

    private var throttles: [ByteBuffer: Throttle] = [:]

    var isEmpty: Bool { throttles.isEmpty }
    var count: Int { throttles.count }

    /// Decides on a notification for a token.
    /// - Parameter isReturning: whether it waited before, and this is its turn.
    mutating func decide(_ token: ByteBuffer, isReturning: Bool, now: Int64) -> Decision {
        guard var throttle = throttles[token] else { return .send }
        let isTrying = now < throttle.tryingUntil
        if now >= throttle.until, now >= throttle.tail, !isTrying {
            // Nobody waits any more.
            throttles[token] = nil
            return .send
        }
        if now >= throttle.until, isReturning, !isTrying {
            throttle.tryingUntil = now + Self.longestTry
            throttles[token] = throttle
            return .send
        }
        let due = max(throttle.tail, throttle.until, now) + Self.spacing
        throttle.tail = due
        throttles[token] = throttle
        return .wait(until: due)
    }

    /// APNs has had enough of the token.
    /// - Parameter retryAt: when the notification would be tried again if it were the only one.
    /// - Returns: when it is to be tried again.
    mutating func throttled(_ token: ByteBuffer, retryAt: Int64, now: Int64) -> Int64 {
        guard var throttle = throttles[token] else {
            if throttles.count >= Self.maximumCount { forget(before: now) }
            guard throttles.count < Self.maximumCount else { return retryAt }
            throttles[token] = Throttle(until: retryAt, tail: retryAt)
            return retryAt
        }
        defer { throttles[token] = throttle }
        if now < throttle.tryingUntil || now >= throttle.until {
            // The one whose turn it was: it stays the first, and those that wait come after it.
            throttle.tryingUntil = 0
            throttle.until = retryAt
            throttle.tail = max(throttle.tail, retryAt)
            return retryAt
        }
        // One of several that were under way together.
        throttle.tail = max(throttle.tail, retryAt) + Self.spacing
        return throttle.tail
    }

    /// A notification for the token has ended in another way.
    mutating func ended(_ token: ByteBuffer, now: Int64) {
        guard var throttle = throttles[token] else { return }
        throttle.tryingUntil = 0
        throttles[token] = now >= throttle.tail && now >= throttle.until ? nil : throttle
    }

    /// Others have been told that they are sending too much to a token.
    mutating func learned(_ token: ByteBuffer, until: Int64, now: Int64) {
        guard until > now, throttles[token] == nil, throttles.count < Self.maximumCount else { return }
        throttles[token] = Throttle(until: until, tail: until)
    }

    /// Forgets the tokens that nobody waits for any more.
    mutating func forget(before now: Int64) {
        throttles = throttles.filter { $0.value.until > now || $0.value.tail > now || $0.value.tryingUntil > now }
    }
}
