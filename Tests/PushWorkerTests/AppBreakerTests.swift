import NIOCore
import Testing

@testable import PushWorker

@Suite("An app's breaker")
struct AppBreakerTests {
    let start = NIODeadline.uptimeNanoseconds(1_000_000_000_000)
    let pause = TimeAmount.seconds(15)

    /// A breaker that was tripped, and whose pause Redis has told.
    private func open() -> AppBreaker {
        var breaker = AppBreaker()
        check(breaker.tripped(reason: "x", isProbe: false, now: start))
        check(!breaker.learned(reason: "x", wait: pause, now: start))
        return breaker
    }

    @Test("lets everything through until it is tripped")
    func closed() {
        let breaker = AppBreaker()
        check(breaker.decide(now: start) == .send)
        check(!breaker.isOpen && !breaker.wantsProbe(now: start))
    }

    @Test("tells of a fault once, though many requests were under way")
    func once() {
        var breaker = open()
        check(!breaker.tripped(reason: "x", isProbe: false, now: start + .seconds(1)))
        check(breaker.decide(now: start + .seconds(2)) == .wait(until: start + pause))
        check(breaker.decide(now: start + pause) == .ask)
    }

    @Test("asks Redis for a probe after the pause, once, and sends one when Redis grants it, and only one")
    func probe() {
        var breaker = open()
        let later = start + pause
        check(!breaker.wantsProbe(now: start))
        check(breaker.wantsProbe(now: later))
        breaker.asked()
        check(breaker.decide(now: later) != .ask && breaker.decide(now: later) != .probe)
        breaker.granted()
        check(breaker.decide(now: later) == .probe)
        breaker.probeSent()
        check(breaker.decide(now: later) != .probe && breaker.decide(now: later + .hours(1)) != .ask)
    }

    @Test("waits when somebody else makes the probe")
    func othersProbe() {
        var breaker = open()
        let later = start + pause
        breaker.asked()
        breaker.denied(reason: "y", wait: .seconds(30), now: later)
        check(breaker.decide(now: later) == .wait(until: later + .seconds(30)))
        check(breaker.reason == "y")
    }

    @Test("what is read of the pause while a probe is asked for does not lose the probe, which nobody else would get")
    func readMeanwhile() {
        var breaker = open()
        let later = start + pause
        breaker.asked()
        check(!breaker.learned(reason: "x", wait: .seconds(30), now: later))
        breaker.granted()
        check(breaker.decide(now: later) == .probe)
    }

    @Test("closes when the probe gets through, and says what the fault was")
    func closes() {
        var breaker = open()
        breaker.asked()
        breaker.granted()
        breaker.probeSent()
        check(breaker.closed() == "x")
        check(breaker.decide(now: start + pause) == .send)
        check(breaker.closed() == nil)
    }

    @Test("a probe that is refused too waits for what Redis says")
    func failedProbe() {
        var breaker = open()
        let later = start + pause
        breaker.asked()
        breaker.granted()
        breaker.probeSent()
        check(!breaker.tripped(reason: "x", isProbe: true, now: later))
        check(breaker.decide(now: later) == .wait(until: later + AppBreaker.patience))
        check(!breaker.learned(reason: "x", wait: .seconds(30), now: later))
        check(breaker.decide(now: later) == .wait(until: later + .seconds(30)))
    }

    @Test("an answer to what was under way does not end a probe")
    func lateAnswers() {
        var breaker = open()
        breaker.asked()
        breaker.granted()
        breaker.probeSent()
        check(!breaker.tripped(reason: "x", isProbe: false, now: start + pause))
        check(!breaker.learned(reason: "x", wait: .zero, now: start + pause))
        check(breaker.decide(now: start + pause) != .ask)
    }

    @Test("tries again when a probe was lost, or Redis could not be asked")
    func inconclusive() {
        var breaker = open()
        let later = start + pause
        breaker.asked()
        breaker.askingFailed(now: later)
        check(breaker.decide(now: later) == .wait(until: later + AppBreaker.patience))
        check(breaker.decide(now: later + AppBreaker.patience) == .ask)
        breaker.asked()
        breaker.granted()
        breaker.probeSent()
        breaker.probeInconclusive(now: later)
        check(breaker.decide(now: later + AppBreaker.patience) == .ask)
    }

    @Test("opens when others have found the fault, and has another version then")
    func othersFault() {
        var breaker = AppBreaker()
        let version = breaker.version
        check(breaker.learned(reason: "x", wait: pause, now: start))
        check(!breaker.learned(reason: "x", wait: pause, now: start))
        check(breaker.version != version)
        let open = breaker.version
        check(breaker.closed() == "x")
        check(breaker.version != open && breaker.version != version)
    }

    @Test("sends nothing while it is blocked, no probe either, whatever Redis says")
    func blocked() {
        var breaker = open()
        let later = start + pause
        breaker.asked()
        breaker.granted()
        check(breaker.allows(isProbe: true) && !breaker.allows(isProbe: false))
        breaker.block("wrong certificate")
        check(breaker.decide(now: later) == .wait(until: .distantFuture))
        check(!breaker.wantsProbe(now: later + .hours(1000)))
        check(!breaker.allows(isProbe: true) && !breaker.allows(isProbe: false))
        check(breaker.reason == "wrong certificate" && breaker.isOpen && !breaker.isPausedByOperator)
        // Another worker, whose certificate is right, has ended the pause.
        check(breaker.closed() == "x")
        check(breaker.closed() == nil)
        check(breaker.isOpen && breaker.decide(now: later) == .wait(until: .distantFuture))
    }

    @Test("goes on where it was when the block ends: with the fleet's pause, or without one")
    func unblocked() {
        var breaker = AppBreaker()
        breaker.block("wrong certificate")
        check(breaker.learned(reason: "wrong certificate", wait: pause, now: start))
        breaker.block(nil)
        check(breaker.decide(now: start) == .wait(until: start + pause))
        check(breaker.decide(now: start + pause) == .ask)
        check(breaker.closed() == "wrong certificate")
        breaker.block("wrong certificate")
        breaker.block(nil)
        check(!breaker.isOpen && breaker.decide(now: start) == .send && breaker.allows(isProbe: false))
    }

    @Test("a pause that a person ordered has no probes")
    func ordered() {
        var breaker = AppBreaker()
        check(breaker.learned(reason: "maintenance", wait: nil, now: start))
        check(breaker.decide(now: start + .hours(1000)) == .wait(until: .distantFuture))
        check(!breaker.wantsProbe(now: start + .hours(1000)))
        check(breaker.isPausedByOperator && !open().isPausedByOperator)
    }
}
