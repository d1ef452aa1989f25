import NIOCore
import Testing

@testable import PushWorker

@Suite("An endpoint's breaker")
struct EndpointBreakerTests {
    let start = NIODeadline.uptimeNanoseconds(1_000_000_000_000)
    let longest = TimeAmount.minutes(5)

    private func fail(_ breaker: inout EndpointBreaker, isProbe: Bool = false, at time: NIODeadline) -> Bool {
        breaker.recordFailure("ServiceUnavailable", isProbe: isProbe, longest: longest, now: time, jitter: 1)
    }

    private func allowsProbe(_ breaker: EndpointBreaker, now: NIODeadline) -> Bool {
        breaker.decide(now: now) == .probe(.ofEndpoint)
    }

    private func wait(_ breaker: EndpointBreaker, now: NIODeadline) -> TimeAmount? {
        if case .wait(.endpoint, let until) = breaker.decide(now: now) { until - now } else { nil }
    }

    private func open() -> EndpointBreaker {
        var breaker = EndpointBreaker()
        for _ in 0..<EndpointBreaker.limit { _ = fail(&breaker, at: start) }
        return breaker
    }

    @Test("opens after many failures in a row, or after a few over a longer time")
    func opens() {
        var breaker = EndpointBreaker()
        for _ in 1..<EndpointBreaker.limit { #expect(fail(&breaker, at: start) == false) }
        #expect(breaker.recordAnswer(now: start) == nil)
        for _ in 1..<EndpointBreaker.limit { #expect(fail(&breaker, at: start) == false) }
        #expect(fail(&breaker, at: start) == true)
        #expect(breaker.isOpen)
        #expect(breaker.reason == "ServiceUnavailable")
        #expect(fail(&breaker, at: start) == false)

        var quiet = EndpointBreaker()
        #expect(fail(&quiet, at: start) == false)
        #expect(fail(&quiet, at: start + .seconds(40)) == false)
        #expect(fail(&quiet, at: start + .seconds(50)) == true)
    }

    @Test("allows one probe at a time, after pauses that double")
    func probes() throws {
        var breaker = open()
        var (now, pauses) = (start, [TimeAmount]())
        for _ in 0..<12 {
            let wait = try #require(self.wait(breaker, now: now))
            pauses.append(wait)
            #expect(allowsProbe(breaker, now: now) == false)
            #expect(breaker.wantsProbe(now: now + wait) == true)
            now = now + wait
            #expect(allowsProbe(breaker, now: now) == true)
            breaker.recordProbe()
            #expect(allowsProbe(breaker, now: now + .hours(1)) == false)
            #expect(breaker.wantsProbe(now: now) == false)
            #expect(fail(&breaker, at: now) == false)
            #expect(allowsProbe(breaker, now: now) == false)
            _ = fail(&breaker, isProbe: true, at: now)
        }
        #expect(pauses[..<4] == [.seconds(1), .seconds(2), .seconds(4), .seconds(8)])
        #expect(pauses.last == longest)
    }

    @Test("closes with any answer, and continues with longer pauses if it opens again at once")
    func closes() {
        var breaker = open()
        let later = start + .seconds(1)
        breaker.recordProbe()
        _ = fail(&breaker, isProbe: true, at: later)
        #expect(breaker.recordAnswer(now: later) == "ServiceUnavailable")
        #expect(!breaker.isOpen)
        #expect(!breaker.isInDoubt)
        for _ in 0..<EndpointBreaker.limit { _ = fail(&breaker, at: later) }
        #expect(wait(breaker, now: later) == .seconds(4))
        #expect(breaker.recordAnswer(now: later) != nil)
        let muchLater = later + .minutes(2)
        for _ in 0..<EndpointBreaker.limit { _ = fail(&breaker, at: muchLater) }
        #expect(wait(breaker, now: muchLater) == .seconds(1))
    }

    @Test("closes when no job has arrived to probe with, after the deferred ones are due")
    func idle() {
        var breaker = open()
        let due = start + .minutes(5)
        breaker.recordPostponement(until: due)
        #expect(breaker.closeIfIdle(now: due) == false)
        #expect(breaker.closeIfIdle(now: due + .seconds(14)) == false)
        #expect(breaker.closeIfIdle(now: due + .seconds(15)) == true)
        #expect(!breaker.isOpen)
        #expect(breaker.closeIfIdle(now: due + .minutes(1)) == false)

        var probing = open()
        probing.recordProbe()
        #expect(probing.closeIfIdle(now: due) == false)
    }

    @Test("opens when nothing is answered, without waiting for deadlines")
    func unanswered() {
        var breaker = EndpointBreaker()
        #expect(breaker.recordUnanswered(longest: longest, now: start, jitter: 0) == true)
        #expect(breaker.recordUnanswered(longest: longest, now: start, jitter: 0) == false)
        #expect(breaker.isOpen)
        #expect(breaker.reason?.isNoAnswer == true)
        #expect(breaker.recordAnswer(now: start) != nil)
    }

    @Test("probes again soon after an inconclusive probe")
    func inconclusive() {
        var breaker = open()
        breaker.recordInconclusiveProbe(now: start)
        #expect(wait(breaker, now: start) == .seconds(1))
        breaker.recordProbe()
        breaker.recordInconclusiveProbe(now: start + .seconds(5))
        #expect(allowsProbe(breaker, now: start + .seconds(5)) == false)
        #expect(allowsProbe(breaker, now: start + .seconds(6)) == true)
    }
}
