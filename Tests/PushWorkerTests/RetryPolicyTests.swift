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

    @Test("spreads the pause over all of it")
    func jitter() {
        #expect(policy.delay(afterAttempt: 5, retryAfter: nil, jitter: 0) == 0)
        #expect(policy.delay(afterAttempt: 5, retryAfter: nil, jitter: 0.5) == 8000)
    }

    @Test("waits at least as long as the server asked for, and not for years")
    func retryAfter() {
        #expect(policy.delay(afterAttempt: 1, retryAfter: 30, jitter: 0) == 30_000)
        #expect(policy.delay(afterAttempt: 1, retryAfter: 30, jitter: 0.5) == 30_500)
        #expect(policy.delay(afterAttempt: 1, retryAfter: .max, jitter: 0) == 86_400_000)
        #expect(policy.delay(afterAttempt: 1, retryAfter: -5, jitter: 0) == 0)
    }

    @Test("does not overflow, whatever the numbers")
    func extremes() {
        var policy = RetryPolicy()
        policy.base = .max
        #expect(policy.delay(afterAttempt: .max, retryAfter: nil, jitter: 1) == policy.cap)
        #expect(policy.delay(afterAttempt: .min, retryAfter: nil, jitter: 1) == policy.cap)
    }
}
