import NIOCore
import Testing

@testable import PushWorker

@Suite("An app's breaker")
struct AppBreakerTests {
    let start = NIODeadline.uptimeNanoseconds(1_000_000_000)

    @Test("lets everything through until it is tripped")
    func closed() {
        var breaker = AppBreaker()
        check(breaker.decide(now: start) == .send)
        check(!breaker.isOpen)
    }

    @Test("tells of a fault once, though many requests were under way")
    func once() {
        var breaker = AppBreaker()
        check(breaker.trip(reason: "InvalidProviderToken", now: start))
        check(!breaker.trip(reason: "InvalidProviderToken", now: start + .seconds(1)))
        check(breaker.decide(now: start + .seconds(2)) == .wait(until: start + AppBreaker.firstPause))
    }

    @Test("lets one probe through after the pause, and only one")
    func probe() {
        var breaker = AppBreaker()
        _ = breaker.trip(reason: "x", now: start)
        let later = start + AppBreaker.firstPause
        check(breaker.peek(now: later) == .probe)
        check(breaker.decide(now: later) == .probe)
        check(breaker.decide(now: later) != .probe)
    }

    @Test("closes when the probe gets through, and says what the fault was")
    func closes() {
        var breaker = AppBreaker()
        _ = breaker.trip(reason: "x", now: start)
        _ = breaker.decide(now: start + AppBreaker.firstPause)
        check(breaker.worked() == "x")
        check(breaker.decide(now: start + AppBreaker.firstPause) == .send)
        check(breaker.worked() == nil)
    }

    @Test("waits longer after each probe that fails, up to a limit")
    func backsOff() {
        var breaker = AppBreaker()
        _ = breaker.trip(reason: "x", now: start)
        var now = start + AppBreaker.firstPause
        var last = AppBreaker.firstPause
        for _ in 0..<10 {
            check(breaker.decide(now: now) == .probe)
            check(!breaker.trip(reason: "x", now: now))
            guard case .wait(let until) = breaker.decide(now: now) else {
                Issue.record("a failed probe must pause the app again")
                return
            }
            check(until - now >= last)
            last = until - now
            now = until
        }
        check(last == AppBreaker.longestPause)
    }

    @Test("tries again when a probe was lost")
    func inconclusive() {
        var breaker = AppBreaker()
        _ = breaker.trip(reason: "x", now: start)
        let later = start + AppBreaker.firstPause
        _ = breaker.decide(now: later)
        breaker.probeInconclusive()
        check(breaker.decide(now: later) == .probe)
    }
}
