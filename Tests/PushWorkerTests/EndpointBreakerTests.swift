import NIOCore
import Testing

@testable import PushWorker

@Suite("An endpoint's breaker")
struct EndpointBreakerTests {
    let start = NIODeadline.uptimeNanoseconds(1_000_000_000_000)
    let longest = TimeAmount.minutes(5)

    private func fail(_ breaker: inout EndpointBreaker, isProbe: Bool = false, at time: NIODeadline) -> Bool {
        breaker.failed("ServiceUnavailable", isProbe: isProbe, longest: longest, now: time, jitter: 1)
    }

    private func open() -> EndpointBreaker {
        var breaker = EndpointBreaker()
        for _ in 0..<EndpointBreaker.limit { _ = fail(&breaker, at: start) }
        return breaker
    }

    @Test("opens after many failures in a row, or after a few that last")
    func opens() {
        var breaker = EndpointBreaker()
        for _ in 1..<EndpointBreaker.limit { check(!fail(&breaker, at: start)) }
        check(breaker.answered(now: start) == nil)
        for _ in 1..<EndpointBreaker.limit { check(!fail(&breaker, at: start)) }
        check(fail(&breaker, at: start) && breaker.isOpen && breaker.reason == "ServiceUnavailable")
        check(!fail(&breaker, at: start))

        var quiet = EndpointBreaker()
        check(!fail(&quiet, at: start) && !fail(&quiet, at: start + .seconds(40)))
        check(fail(&quiet, at: start + .seconds(50)))
    }

    @Test("allows one probe at a time, after pauses that double")
    func probes() {
        var breaker = open()
        var (now, pauses) = (start, [TimeAmount]())
        for _ in 0..<12 {
            let wait = breaker.wait(now: now)
            pauses.append(wait)
            check(!breaker.allowsProbe(now: now) && breaker.wantsProbe(now: now + wait))
            now = now + wait
            check(breaker.allowsProbe(now: now))
            breaker.probeSent()
            check(!breaker.allowsProbe(now: now + .hours(1)) && !breaker.wantsProbe(now: now))
            check(!fail(&breaker, at: now))
            check(!breaker.allowsProbe(now: now))
            _ = fail(&breaker, isProbe: true, at: now)
        }
        check(pauses[..<4] == [.seconds(1), .seconds(2), .seconds(4), .seconds(8)] && pauses.last == longest)
    }

    @Test("closes with any answer, and goes on with longer pauses if it opens again at once")
    func closes() {
        var breaker = open()
        let later = start + .seconds(1)
        breaker.probeSent()
        _ = fail(&breaker, isProbe: true, at: later)
        check(breaker.answered(now: later) == "ServiceUnavailable" && !breaker.isOpen && !breaker.isInDoubt)
        for _ in 0..<EndpointBreaker.limit { _ = fail(&breaker, at: later) }
        check(breaker.wait(now: later) == .seconds(4))
        check(breaker.answered(now: later) != nil)
        let muchLater = later + .minutes(2)
        for _ in 0..<EndpointBreaker.limit { _ = fail(&breaker, at: muchLater) }
        check(breaker.wait(now: muchLater) == .seconds(1))
    }

    @Test("opens when nothing is answered, without waiting for deadlines")
    func unanswered() {
        var breaker = EndpointBreaker()
        check(breaker.foundUnanswered(longest: longest, now: start, jitter: 0))
        check(!breaker.foundUnanswered(longest: longest, now: start, jitter: 0))
        check(breaker.isOpen && breaker.reason?.isNoAnswer == true)
        check(breaker.answered(now: start) != nil)
    }

    @Test("probes again soon after a probe that says nothing")
    func inconclusive() {
        var breaker = open()
        breaker.probeInconclusive(now: start)
        check(breaker.wait(now: start) == .seconds(1))
        breaker.probeSent()
        breaker.probeInconclusive(now: start + .seconds(5))
        check(!breaker.allowsProbe(now: start + .seconds(5)) && breaker.allowsProbe(now: start + .seconds(6)))
    }
}
