import NIOCore
import Testing

@testable import PushWorker

@Suite("An app's rate in a lane")
struct RateBudgetTests {
    private var budget = RateBudget(perSecond: 100)
    let start = NIODeadline.uptimeNanoseconds(1_000_000_000_000)

    @Test("nothing may be sent before a portion is reserved, nor before the portion's time")
    mutating func reserved() {
        #expect(budget.available(now: start) == 0)
        #expect(budget.reserve(waiting: 0, now: start) == nil)
        #expect(budget.reserve(waiting: 50, now: start) == 5)
        #expect(budget.reserve(waiting: 50, now: start) == nil)
        budget.recordPortion(5, wait: .milliseconds(40), now: start)
        #expect(budget.available(now: start) == 0)
        #expect(budget.reserve(waiting: 50, now: start) == nil)
        #expect(budget.available(now: start + .milliseconds(40)) == 5)
    }

    @Test("is reserved again when it is used up, and no more than needed")
    mutating func usedUp() {
        _ = budget.reserve(waiting: 50, now: start)
        budget.recordPortion(5, wait: .zero, now: start)
        budget.recordSpent(4)
        #expect(budget.reserve(waiting: 50, now: start) == nil)
        budget.recordSpent(1)
        #expect(budget.available(now: start) == 0)
        #expect(budget.reserve(waiting: 2, now: start) == 2)
    }

    @Test("a portion that was not used in time is lost")
    mutating func unused() {
        _ = budget.reserve(waiting: 50, now: start)
        budget.recordPortion(5, wait: .zero, now: start)
        #expect(budget.available(now: start + .seconds(2)) == 0)
        #expect(budget.reserve(waiting: 50, now: start + .seconds(2)) == 5)
    }

    @Test("asks again after a while when Redis could not be asked")
    func failed() {
        var budget = RateBudget(perSecond: 1)
        #expect(budget.reserve(waiting: 50, now: start) == 1)
        budget.recordFailure(now: start)
        #expect(budget.reserve(waiting: 50, now: start) == nil)
        #expect(budget.reserve(waiting: 50, now: start + .seconds(1)) == 1)
    }

    @Test("deferred notifications return at the rate, and within an hour")
    func deferral() {
        var budget = RateBudget(perSecond: 10)
        #expect(budget.deferral(of: 1, now: start) == .milliseconds(1100))
        #expect(budget.deferral(of: 1, now: start) == .milliseconds(1200))
        #expect(budget.deferral(of: 100, now: start) == .milliseconds(11_200))
        #expect(budget.deferral(of: 1_000_000, now: start) == .hours(1))
        #expect(budget.deferral(of: 1, now: start + .hours(2)) == .milliseconds(1100))
    }
}
