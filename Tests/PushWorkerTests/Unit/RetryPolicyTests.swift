import APNS
import Testing

@testable import PushWorker

@Suite("A retry policy")
struct RetryPolicyTests {
    let policy = RetryPolicy()

    @Test("doubles the ceiling of the pause with each attempt, up to the cap")
    func grows() {
        let ceilings = (1...20).map { policy.delay(afterAttempt: $0, retryAfter: nil, jitter: 1) }
        #expect(ceilings.prefix(4) == [1000, 2000, 4000, 8000])
        #expect(ceilings == ceilings.sorted())
        #expect(ceilings.last == policy.cap)
    }

    @Test("spreads the pause over its whole range")
    func jitter() {
        #expect(policy.delay(afterAttempt: 5, retryAfter: nil, jitter: 0) == 0)
        #expect(policy.delay(afterAttempt: 5, retryAfter: nil, jitter: 0.5) == 8000)
    }

    @Test("waits at least as long as the server requested, but not for years")
    func retryAfter() {
        #expect(policy.delay(afterAttempt: 1, retryAfter: 30, jitter: 0) == 30_000)
        #expect(policy.delay(afterAttempt: 1, retryAfter: 30, jitter: 0.5) == 30_500)
        #expect(policy.delay(afterAttempt: 1, retryAfter: .max, jitter: 0) == 900_000)
        #expect(policy.delay(afterAttempt: 1, retryAfter: 86_400, jitter: 0) == 900_000)
        #expect(policy.delay(afterAttempt: 1, retryAfter: -5, jitter: 0) == 0)
    }

    @Test("lets pauses after server errors grow from failure to failure, to 15 minutes")
    func serverErrors() {
        func pause(_ elapsed: Int64?, retryAfter: Int? = nil, jitter: Double = 1) -> Int64 {
            policy.serverErrorPause(elapsed: elapsed, retryAfter: retryAfter, jitter: jitter)
        }
        #expect(pause(nil) == 1000 && pause(nil, jitter: 0) == 500)
        #expect(pause(10_000) == 20_000 && pause(10_000, jitter: 0) == 10_000)
        #expect(pause(.max) == 900_000 && pause(0) == 1000)
        #expect(pause(nil, retryAfter: 7) == 8000 && pause(nil, retryAfter: .max) == 901_000)
        #expect(pause(60_000, retryAfter: 7) == 120_000)
        // There are few failures in an hour, because the pauses grow.
        var (time, failures) = (Int64(0), 0)
        var elapsed: Int64?
        while time < 3_600_000 {
            let next = pause(elapsed, jitter: 0.5)
            (time, failures, elapsed) = (time + next, failures + 1, next)
        }
        #expect(failures < 25)
        var short = policy
        short.cap = 400
        #expect(short.serverErrorPause(elapsed: 5000, retryAfter: nil, jitter: 1) == 400)
    }

    private func resendPause(
        _ failure: RequestFailure.Kind, resends: Int = 0, isReturning: Bool = false, age: Int64 = 0, jitter: Double = 1
    ) -> Int64? {
        policy.resendPause(after: failure, resends: resends, isReturning: isReturning, age: age, jitter: jitter)
    }

    @Test("resends unprocessed requests at once the first time, and then after pauses that grow with their age")
    func resends() {
        for failure in [RequestFailure.Kind.refusedStream, .goingAway, .connectionLost, .unresponsive] {
            #expect(resendPause(failure) == nil)
            #expect(resendPause(failure, resends: 1) == 1000)
            #expect(resendPause(failure, resends: 1, jitter: 0) == 500)
            #expect(resendPause(failure, resends: 1, age: 20_000) == 10_000)
            #expect(resendPause(failure, resends: 1, age: 20_000, jitter: 0) == 5000)
            #expect(resendPause(failure, resends: 1, age: .max) == RetryPolicy.longestResendPause)
        }
        // A server that refused the job before is not asked twice in a row.
        #expect(resendPause(.refusedStream, isReturning: true, age: 6000) == 3000)
        #expect(resendPause(.goingAway, isReturning: true, age: 6000) == nil)
        // Another connection is being made. A notification that was discarded after a bad one need not wait.
        #expect(resendPause(.noOtherConnection) == 1000)
        #expect(resendPause(.discarded, resends: 9) == nil)
        var short = policy
        short.cap = 400
        #expect(short.resendPause(after: .refusedStream, resends: 1, isReturning: true, age: .max, jitter: 1) == 400)
    }

    @Test("does not overflow, whatever the numbers")
    func extremes() {
        var policy = RetryPolicy()
        policy.base = .max
        #expect(policy.delay(afterAttempt: .max, retryAfter: nil, jitter: 1) == policy.cap)
        #expect(policy.delay(afterAttempt: .min, retryAfter: nil, jitter: 1) == policy.cap)
    }
}
