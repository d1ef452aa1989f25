import NIOCore
import PushQueue
import Redis
import Sockets

/// Decides when, and for how long, to repeat a write that Redis does not accept. Has no I/O.
package struct WritePatience: Sendable {
    private let backoff: Backoff
    private var limit: TimeAmount
    private var isShortened = false
    private var failures = 0
    private var since: NIODeadline?

    /// - Parameters:
    ///   - limit: the maximum time of the attempts.
    ///   - backoff: the pauses between attempts.
    package init(
        limit: TimeAmount,
        backoff: Backoff = Backoff(first: .milliseconds(50), longest: .seconds(1))
    ) {
        self.limit = limit
        self.backoff = backoff
    }

    /// Returns true if writes have been failing for at least this time.
    package func hasLasted(_ time: TimeAmount, now: NIODeadline) -> Bool {
        since.map { now - $0 >= time } ?? false
    }

    /// - Parameter random: from 0 to 1, evenly distributed.
    /// - Returns: the pause before the write is repeated; `nil` if the time limit has passed.
    package mutating func failed(now: NIODeadline, random: Double) -> TimeAmount? {
        let began = since ?? now
        since = began
        failures += 1
        let left = began + limit - now
        guard left > .zero else { return nil }
        // Never immediately: a Redis that refuses at once would be called without a pause.
        let pause = max(backoff.pause(failures: failures, random: random), .milliseconds(5))
        return min(pause, left)
    }

    package mutating func succeeded() { (since, failures) = (nil, 0) }

    /// Reduces the remaining time to at most `limit`. Later calls have no effect.
    package mutating func shorten(to limit: TimeAmount, now: NIODeadline) {
        guard !isShortened else { return }
        isShortened = true
        let spent = since.map { now - $0 } ?? .zero
        self.limit = min(self.limit, spent + limit)
    }
}
