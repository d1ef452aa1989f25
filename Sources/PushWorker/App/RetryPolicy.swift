import APNS
import Sockets

package struct RetryPolicy: Sendable, Equatable {
    /// The maximum of the first pause, in milliseconds. The maximum doubles with each attempt.
    package var base: Int64 = 1000
    /// The maximum of all pauses in milliseconds. Apple asks for 15 minutes after a server error ("Handling
    /// notification responses from APNs").
    package var cap: Int64 = 900_000
    /// The number of attempts of a job that specifies none.
    package var maximumAttempts = 10

    /// For this time after its job was first seen, in milliseconds, a notification may be resent without spending an attempt. After a
    /// server error, a notification with an expiration may be resent until it expires.
    static let freeResends: Int64 = 24 * 3_600_000
    /// The maximum pause before a resend that spends no attempt, in milliseconds.
    static let longestResendPause: Int64 = 60_000
    /// The maximum `Retry-After` of a server that is obeyed, in milliseconds, unless the cap is longer.
    static let longestRequestedPause: Int64 = 900_000
    /// Jobs of a paused campaign are checked again after this time, in milliseconds.
    static let campaignPause: ClosedRange<Int64> = 240_000...300_000

    /// Returns the range of the pause of a job that this worker refuses and another worker may accept, in milliseconds: about a quarter of
    /// the job's age.
    static func configurationPauses(age: Int64) -> ClosedRange<Int64> {
        let longest = max(1000, min(age / 4, 30_000))
        return longest / 2...longest
    }

    package init() {}

    /// Returns the pause before the next attempt in milliseconds: exponential with full jitter, so that notifications
    /// that failed together are not retried together.
    /// - Parameters:
    ///   - attempt: the number of attempts made, at least 1.
    ///   - retryAfter: the pause in seconds that the server requests, if any. The pause is never shorter, up to `longestRequestedPause`.
    ///   - jitter: a random number from 0 to 1, evenly distributed.
    package func delay(afterAttempt attempt: Int, retryAfter: Int?, jitter: Double) -> Int64 {
        let backoff = Backoff(first: .milliseconds(base), longest: .milliseconds(cap))
        let pause = backoff.pause(failures: attempt, random: jitter).nanoseconds / 1_000_000
        return retryAfter.map { asked($0) + pause } ?? pause
    }

    /// Returns the pause requested by a server, in milliseconds.
    private func asked(_ retryAfter: Int) -> Int64 {
        min(Int64(min(max(retryAfter, 0), 1 << 32)) * 1000, max(cap, Self.longestRequestedPause))
    }

    /// Returns the pause after a server error in milliseconds: about twice the time since the last failure, up to the cap. So pauses grow
    /// without a count of failures.
    /// - Parameters:
    ///   - elapsed: the milliseconds since the notification's last failure; `nil` for its first.
    ///   - retryAfter: the pause in seconds that the server requests, if any. The pause is never shorter, up to `longestRequestedPause`.
    ///   - jitter: a random number from 0 to 1, evenly distributed.
    func serverErrorPause(elapsed: Int64?, retryAfter: Int?, jitter: Double) -> Int64 {
        let least = min(base, cap)
        let ceiling = min(max(least, min(elapsed ?? 0, cap) * 2), cap)
        let pause = ceiling / 2 + Int64(Double(ceiling / 2) * jitter)
        guard let retryAfter else { return pause }
        return max(pause, asked(retryAfter) + Int64(Double(least) * jitter))
    }

    /// Returns the pause in milliseconds before a resend of a notification that APNs certainly did not process; `nil` to resend at once.
    /// Pauses grow with the notification's age. So a server that refuses everything gets few more requests than there are notifications.
    /// - Parameters:
    ///   - failure: the reason why APNs did not process it.
    ///   - resends: the number of immediate resends so far.
    ///   - isReturning: true if the job was in the queue before.
    ///   - age: the milliseconds since the job was first seen.
    ///   - jitter: a random number from 0 to 1, evenly distributed.
    func resendPause(
        after failure: RequestFailure.Kind, resends: Int, isReturning: Bool, age: Int64, jitter: Double
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
