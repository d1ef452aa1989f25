import APNS

/// When, and how often, a notification is tried again.
public struct RetryPolicy: Sendable, Equatable {
    /// The ceiling of the first pause in milliseconds; it doubles with each attempt.
    public var base: Int64 = 1000
    /// The ceiling of all pauses in milliseconds. Apple asks for 15 minutes after a server error ("Handling notification
    /// responses from APNs").
    public var cap: Int64 = 900_000
    /// How many attempts a job has that does not say.
    public var maximumAttempts = 10

    /// For how long after it was first seen a notification may be sent again without spending an attempt, in milliseconds;
    /// after a server error one with an expiration may until then.
    static let freeResends: Int64 = 24 * 3_600_000
    /// The longest pause before that, in milliseconds.
    static let longestResendPause: Int64 = 60_000
    /// The longest pause that a server's `Retry-After` is obeyed for, in milliseconds, unless the cap is longer.
    static let longestRequestedPause: Int64 = 900_000
    /// The time after which jobs of a paused campaign are looked at again, in milliseconds.
    static let campaignPause: ClosedRange<Int64> = 240_000...300_000

    /// The defaults.
    public init() {}

    /// The pause before the next attempt in milliseconds: exponential with full jitter, so that what failed together
    /// does not come back together.
    /// - Parameters:
    ///   - attempt: how many attempts were made, from 1.
    ///   - retryAfter: the seconds that the server asked for: the minimum, up to `longestRequestedPause`.
    ///   - jitter: from 0 to 1, evenly distributed.
    public func delay(afterAttempt attempt: Int, retryAfter: Int?, jitter: Double) -> Int64 {
        let exponent = Int64(min(max(attempt, 1) - 1, 30))
        let (grown, overflows) = base.multipliedReportingOverflow(by: 1 << exponent)
        let ceiling = overflows ? cap : min(cap, grown)
        let backoff = Int64(Double(ceiling) * jitter)
        guard let retryAfter else { return backoff }
        return asked(retryAfter) + backoff
    }

    /// The pause that a server asked for, in milliseconds.
    private func asked(_ retryAfter: Int) -> Int64 {
        min(Int64(min(max(retryAfter, 0), 1 << 32)) * 1000, max(cap, Self.longestRequestedPause))
    }

    /// The pause after a server error, in milliseconds: twice the time since the last failure, up to the cap. So pauses grow
    /// without a count of the failures.
    /// - Parameters:
    ///   - elapsed: the milliseconds since the notification's last failure; `nil` for its first.
    ///   - retryAfter: the seconds that the server asked for: the minimum, up to `longestRequestedPause`.
    ///   - jitter: from 0 to 1, evenly distributed.
    func serverErrorPause(elapsed: Int64?, retryAfter: Int?, jitter: Double) -> Int64 {
        let least = min(base, cap)
        let ceiling = min(max(least, min(elapsed ?? 0, cap) * 2), cap)
        let pause = ceiling / 2 + Int64(Double(ceiling / 2) * jitter)
        guard let retryAfter else { return pause }
        return max(pause, asked(retryAfter) + Int64(Double(least) * jitter))
    }

    /// The pause before a notification that APNs certainly did not process is sent again, in milliseconds; `nil` for at
    /// once, which it is the first time. Pauses grow with the notification's age, so that a server that refuses everything
    /// gets hardly more requests than there are notifications.
    /// - Parameters:
    ///   - failure: why it was not processed.
    ///   - resends: how often it has been sent again at once.
    ///   - isReturning: whether the job has been in the queue before.
    ///   - age: milliseconds since the job was first seen.
    ///   - jitter: from 0 to 1, evenly distributed.
    func resendPause(
        after failure: RequestFailure, resends: Int, isReturning: Bool, age: Int64, jitter: Double
    ) -> Int64? {
        switch failure {
        case .discarded: return nil
        case .noOtherConnection: break
        case .refusedStream where isReturning: break
        default: if resends == 0 { return nil }
        }
        let ceiling = max(min(base, cap), min(age / 2, cap, Self.longestResendPause))
        return ceiling / 2 + Int64(Double(ceiling / 2) * jitter)
    }
}
