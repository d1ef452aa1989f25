import NIOCore
import Redis

/// For how long something is written again that Redis does not take, without any I/O.
public struct WritePatience: Sendable {
    /// The next action after a failure.
    public enum Next: Sendable, Equatable {
        /// Write it again.
        case again(after: TimeAmount)
        /// It has been long enough.
        case giveUp
    }

    private let backoff: ReconnectBackoff
    private var limit: TimeAmount
    private var isShortened = false
    private var failures = 0
    private var since: NIODeadline?

    /// - Parameters:
    ///   - limit: for how long it is tried.
    ///   - backoff: the pauses.
    public init(
        limit: TimeAmount,
        backoff: ReconnectBackoff = ReconnectBackoff(initial: .milliseconds(50), maximum: .seconds(1))
    ) {
        self.limit = limit
        self.backoff = backoff
    }

    /// Returns true if it has failed for so long.
    public func hasLasted(_ time: TimeAmount, now: NIODeadline) -> Bool {
        since.map { now - $0 >= time } ?? false
    }

    /// It was not taken.
    /// - Parameter random: from 0 to 1, evenly spread.
    public mutating func failed(now: NIODeadline, random: Double) -> Next {
        let began = since ?? now
        since = began
        failures += 1
        let left = began + limit - now
        guard left > .zero else { return .giveUp }
        // Never at once: a Redis that refuses at once would be asked without end.
        let pause = max(backoff.delay(failures: failures, random: random), .milliseconds(5))
        return .again(after: min(pause, left))
    }

    /// It was taken.
    public mutating func succeeded() { (since, failures) = (nil, 0) }

    /// From now on there is less time: no more than this, counted from the first call.
    public mutating func shorten(to limit: TimeAmount, now: NIODeadline) {
        guard !isShortened else { return }
        isShortened = true
        let spent = since.map { now - $0 } ?? .zero
        self.limit = min(self.limit, spent + limit)
    }
}

extension QueueConnection.Failure {
    /// True if Redis answered; false if it could not be reached or gave no answer.
    public var isAnswer: Bool {
        if case .redis(let error) = self { error.isAnswer } else { true }
    }

    /// True if it may pass by itself: Redis is away, loads, is full or has no master; and not a wrong password, a
    /// missing right or a key that holds something else.
    public var mayPass: Bool {
        switch self {
        case .unexpectedReply, .redis(.authentication), .redis(.commandTooLarge): false
        case .redis(.server(let error)):
            !["WRONGTYPE", "NOPERM", "NOAUTH", "WRONGPASS", "ERR"].contains(error.prefix)
        case .redis: true
        }
    }
}
