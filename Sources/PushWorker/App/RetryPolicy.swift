import APNS
import Sockets

package struct RetryPolicy: Sendable, Equatable {
    /// The maximum of the first pause in milliseconds; it doubles with each attempt.
    package var base: Int64 = 1000
    /// The maximum of all pauses in milliseconds. Apple asks for 15 minutes after a server error ("Handling
    /// notification responses from APNs").
    package var cap: Int64 = 900_000
    /// The number of attempts of a job that specifies none.
    package var maximumAttempts = 10

    /// The time after it was first seen during which a notification may be resent without spending an attempt, in
    /// milliseconds. After a server error, one with an expiration may be until it expires.
    static let freeResends: Int64 = 24 * 3_600_000
    /// The maximum pause before such a resend, in milliseconds.
    static let longestResendPause: Int64 = 60_000
    /// The maximum pause for which a server's `Retry-After` is obeyed, in milliseconds, unless the cap is longer.
    static let longestRequestedPause: Int64 = 900_000
    /// The time after which jobs of a paused campaign are checked again, in milliseconds.
    static let campaignPause: ClosedRange<Int64> = 240_000...300_000

    /// Returns the range of the pause of a job that this worker's configuration refuses and another worker's may accept,
    /// in milliseconds: about a quarter of the job's age.
    static func configurationPauses(age: Int64) -> ClosedRange<Int64> {
        let longest = max(1000, min(age / 4, 30_000))
        return longest / 2...longest
    }

    package init() {}

    /// Returns the pause before the next attempt in milliseconds: exponential with full jitter, so that notifications
    /// that failed together are not retried together.
    /// - Parameters:
    ///   - attempt: the number of attempts made, from 1.
    ///   - retryAfter: the seconds requested by the server: the minimum, up to `longestRequestedPause`.
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

    /// Returns the pause after a server error, in milliseconds: twice the time since the last failure, up to the cap.
    /// So pauses grow without a count of the failures.
    /// - Parameters:
    ///   - elapsed: the milliseconds since the notification's last failure; `nil` for its first.
    ///   - retryAfter: the seconds requested by the server: the minimum, up to `longestRequestedPause`.
    ///   - jitter: a random number from 0 to 1, evenly distributed.
    func serverErrorPause(elapsed: Int64?, retryAfter: Int?, jitter: Double) -> Int64 {
        let least = min(base, cap)
        let ceiling = min(max(least, min(elapsed ?? 0, cap) * 2), cap)
        let pause = ceiling / 2 + Int64(Double(ceiling / 2) * jitter)
        guard let retryAfter else { return pause }
        return max(pause, asked(retryAfter) + Int64(Double(least) * jitter))
    }

    /// Returns the pause in milliseconds before a notification that APNs certainly did not process is resent; `nil` to
    /// resend at once, as is done the first time. Pauses grow with the notification's age, so that a server that
    /// refuses everything gets few more requests than there are notifications.
    /// - Parameters:
    ///   - failure: the reason for which it was not processed.
    ///   - resends: the number of immediate resends so far.
    ///   - isReturning: true if the job was in the queue before.
    ///   - age: milliseconds since the job was first seen.
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
