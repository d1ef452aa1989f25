import NIOCore
import Testing

@testable import PushWorker

@Suite("An app's breaker")
struct AppBreakerTests {
    let start = NIODeadline.uptimeNanoseconds(1_000_000_000_000)
    let pause = TimeAmount.seconds(15)

    private var later: NIODeadline { start + pause }

    /// A breaker that was tripped, with the pause from Redis, and its probe up to a step.
    private func open(asked: Bool = false, granted: Bool = false, probing: Bool = false) -> AppBreaker {
        var breaker = AppBreaker()
        #expect(breaker.recordFault(reason: "x", isProbe: false, now: start) == true)
        #expect(breaker.recordPause(reason: "x", wait: pause, now: start) == false)
        if asked || granted || probing { breaker.recordQuestion() }
        if granted || probing { breaker.recordGrant() }
        if probing { breaker.recordProbe() }
        return breaker
    }

    @Test("reports a fault once, although many requests were in flight")
    func once() {
        var breaker = open()
        #expect(breaker.recordFault(reason: "x", isProbe: false, now: start + .seconds(1)) == false)
        #expect(breaker.decide(now: start + .seconds(2)) == .wait(.pause, until: later))
        #expect(breaker.decide(now: later) == .ask)
    }

    @Test("asks Redis for a probe after the pause, once, and sends one when Redis grants it, and only one")
    func probe() {
        var breaker = open()
        #expect(!breaker.wantsProbe(now: start) && breaker.wantsProbe(now: later))
        breaker.recordQuestion()
        #expect(breaker.decide(now: later) != .ask && breaker.decide(now: later) != .probe(.ofApp))
        // A read of the pause in the meantime does not lose the probe.
        #expect(breaker.recordPause(reason: "x", wait: .seconds(30), now: later) == false)
        breaker.recordGrant()
        #expect(breaker.decide(now: later) == .probe(.ofApp))
        breaker.recordProbe()
        #expect(breaker.decide(now: later) != .probe(.ofApp) && breaker.decide(now: later + .hours(1)) != .ask)
    }

    @Test("waits while another lane makes the probe")
    func othersProbe() {
        var breaker = open(asked: true)
        breaker.recordDenial(reason: "y", wait: .seconds(30), now: later)
        #expect(breaker.decide(now: later) == .wait(.pause, until: later + .seconds(30)))
        #expect(breaker.reason == "y")
    }

    @Test("closes when the probe succeeds, and returns the reason of the pause")
    func closes() {
        var breaker = open(probing: true)
        #expect(breaker.recordEnd() == "x")
        #expect(breaker.decide(now: later) == .send)
        #expect(breaker.recordEnd() == nil)
    }

    @Test("after a refused probe it waits as long as Redis specifies; an answer to an earlier request does not end it")
    func failedProbe() {
        var breaker = open(probing: true)
        #expect(breaker.recordFault(reason: "x", isProbe: false, now: later) == false)
        #expect(breaker.recordPause(reason: "x", wait: .zero, now: later) == false)
        #expect(breaker.decide(now: later) != .ask)

        breaker = open(probing: true)
        #expect(breaker.recordFault(reason: "x", isProbe: true, now: later) == false)
        #expect(breaker.decide(now: later) == .wait(.pause, until: later + AppBreaker.patience))
        #expect(breaker.recordPause(reason: "x", wait: .seconds(30), now: later) == false)
        #expect(breaker.decide(now: later) == .wait(.pause, until: later + .seconds(30)))
    }

    @Test("tries again when a probe was lost, or Redis could not be asked")
    func inconclusive() {
        var breaker = open(asked: true)
        breaker.recordFailedQuestion(now: later)
        #expect(breaker.decide(now: later) == .wait(.pause, until: later + AppBreaker.patience))
        #expect(breaker.decide(now: later + AppBreaker.patience) == .ask)
        breaker = open(probing: true)
        breaker.recordInconclusiveProbe(now: later)
        #expect(breaker.decide(now: later + AppBreaker.patience) == .ask)
    }

    @Test("opens when other lanes have found the fault, and then has another version")
    func othersFault() {
        var breaker = AppBreaker()
        let version = breaker.version
        #expect(breaker.recordPause(reason: "x", wait: pause, now: start) == true)
        #expect(breaker.recordPause(reason: "x", wait: pause, now: start) == false)
        #expect(breaker.version != version)
        let open = breaker.version
        #expect(breaker.recordEnd() == "x")
        #expect(breaker.version != open && breaker.version != version)
    }

    @Test("sends nothing while it is blocked, not even a probe, whatever is in Redis")
    func blocked() {
        var breaker = open(granted: true)
        breaker.block("wrong certificate")
        #expect(breaker.decide(now: later) == .wait(.pause, until: .distantFuture))
        #expect(!breaker.wantsProbe(now: later + .hours(1000)))
        #expect(breaker.reason == "wrong certificate" && breaker.isOpen && !breaker.isPausedByOperator)
        // Another worker, whose certificate is right, has ended the pause.
        #expect(breaker.recordEnd() == "x")
        #expect(breaker.recordEnd() == nil)
        #expect(breaker.isOpen && breaker.decide(now: later) == .wait(.pause, until: .distantFuture))
    }

    @Test("resumes its state when the operator's pause ends: with the fleet's pause, or without one")
    func unblocked() {
        var breaker = AppBreaker()
        breaker.block("wrong certificate")
        #expect(breaker.recordPause(reason: "wrong certificate", wait: pause, now: start) == true)
        breaker.block(nil)
        #expect(breaker.decide(now: start) == .wait(.pause, until: start + pause))
        #expect(breaker.decide(now: start + pause) == .ask)
        #expect(breaker.recordEnd() == "wrong certificate")
        breaker.block("wrong certificate")
        breaker.block(nil)
        #expect(!breaker.isOpen && breaker.decide(now: start) == .send)
    }

    @Test("an operator's pause has no probes")
    func ordered() {
        var breaker = AppBreaker()
        #expect(breaker.recordPause(reason: "maintenance", wait: nil, now: start) == true)
        #expect(breaker.decide(now: start + .hours(1000)) == .wait(.pause, until: .distantFuture))
        #expect(!breaker.wantsProbe(now: start + .hours(1000)))
        #expect(breaker.isPausedByOperator && !open().isPausedByOperator)
    }
}
