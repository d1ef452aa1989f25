import NIOCore
import Testing

@testable import PushWorker

@Suite("Throttled tokens")
struct TokenThrottlesTests {
    private var throttles = TokenThrottles()
    private let token = ByteBuffer(string: "aa")
    private let other = ByteBuffer(string: "bb")
    private let spacing = TokenThrottles.spacing

    @Test("nothing waits for a token that APNs does not throttle")
    mutating func unthrottled() {
        #expect(throttles.recordThrottle(token, retryAt: 2000, now: 1000) == 2000)
        #expect(throttles.nextTry(other, isReturning: false, now: 1000) == nil)
        #expect(throttles.count == 1)
    }

    @Test("notifications that arrive in the meantime wait behind it, in order")
    mutating func order() {
        _ = throttles.recordThrottle(token, retryAt: 2000, now: 1000)
        #expect(throttles.nextTry(token, isReturning: false, now: 1100) == 2000 + spacing)
        #expect(throttles.nextTry(token, isReturning: false, now: 1200) == 2000 + 2 * spacing)
        // The first notification has its turn. A new one queues at the end.
        #expect(throttles.nextTry(token, isReturning: true, now: 2000) == nil)
        #expect(throttles.nextTry(token, isReturning: false, now: 2001) == 2000 + 3 * spacing)
        throttles.recordEnd(token, now: 2050)
        #expect(throttles.nextTry(token, isReturning: true, now: 2000 + spacing) == nil)
        #expect(throttles.nextTry(token, isReturning: true, now: 2000 + 2 * spacing) == 2000 + 4 * spacing)
        throttles.recordEnd(token, now: 2000 + 2 * spacing)
        // A new notification does not overtake those that still wait.
        #expect(throttles.nextTry(token, isReturning: false, now: 2000 + 2 * spacing) != nil)
    }

    @Test("the first stays the first when it is refused again")
    mutating func again() {
        _ = throttles.recordThrottle(token, retryAt: 2000, now: 1000)
        _ = throttles.nextTry(token, isReturning: false, now: 1100)
        #expect(throttles.nextTry(token, isReturning: true, now: 2000) == nil)
        #expect(throttles.recordThrottle(token, retryAt: 5000, now: 2050) == 5000)
        let second = throttles.nextTry(token, isReturning: true, now: 2000 + spacing)
        #expect(second.map { $0 > 5000 } == true, "the second must not be sent before the first")
    }

    @Test("those that were in flight together are retried one after the other")
    mutating func together() {
        let first = throttles.recordThrottle(token, retryAt: 2000, now: 1000)
        let second = throttles.recordThrottle(token, retryAt: 1500, now: 1001)
        let third = throttles.recordThrottle(token, retryAt: 1200, now: 1002)
        #expect(first < second && second < third)
    }

    @Test("is dropped when no notification waits for it")
    mutating func forgotten() {
        _ = throttles.recordThrottle(token, retryAt: 2000, now: 1000)
        #expect(throttles.nextTry(token, isReturning: true, now: 2000) == nil)
        #expect(throttles.isEmpty)
        _ = throttles.recordThrottle(token, retryAt: 3000, now: 2000)
        throttles.forget(before: 2999)
        #expect(!throttles.isEmpty)
        throttles.forget(before: 3000)
        #expect(throttles.isEmpty)
    }

    @Test("a retry that never happened does not block the token forever")
    mutating func lostTry() {
        _ = throttles.recordThrottle(token, retryAt: 2000, now: 1000)
        _ = throttles.nextTry(token, isReturning: false, now: 1000)
        #expect(throttles.nextTry(token, isReturning: true, now: 2000) == nil)
        #expect(throttles.nextTry(token, isReturning: true, now: 3000) != nil)
        #expect(throttles.nextTry(token, isReturning: true, now: 100_000) == nil)
    }

    @Test("throttles of other lanes count as long as they last, and are bounded")
    mutating func learned() {
        throttles.recordReport(token, until: 2000, now: 3000)
        throttles.recordReport(token, until: 3_603_001, now: 3000)
        #expect(throttles.isEmpty)
        throttles.recordReport(token, until: 4000, now: 3000)
        #expect(throttles.nextTry(token, isReturning: false, now: 3000) == 4000 + spacing)
        for number in 0..<TokenThrottles.maximumCount + 10 {
            throttles.recordReport(ByteBuffer(integer: number), until: 9000, now: 3000)
            _ = throttles.recordThrottle(ByteBuffer(integer: -number - 1), retryAt: 9000, now: 3000)
        }
        #expect(throttles.count == TokenThrottles.maximumCount)
    }
}
