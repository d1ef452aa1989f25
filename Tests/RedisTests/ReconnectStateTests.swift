import NIOCore
import Testing

@testable import Redis

@Suite("Connecting again")
struct ReconnectStateTests {
    let start = NIODeadline.uptimeNanoseconds(1_000_000_000_000)

    @Test("waits up to twice as long after each failure, and never longer than the limit")
    func ceiling() {
        let backoff = ReconnectBackoff(initial: .milliseconds(50), maximum: .seconds(5))
        let expected: [Int64] = [50, 100, 200, 400, 800, 1600, 3200, 5000, 5000]
        #expect((1...9).map { backoff.ceiling(failures: $0) } == expected.map { .milliseconds($0) })
        #expect(backoff.ceiling(failures: .max) == .seconds(5))
        #expect(ReconnectBackoff(initial: .seconds(9), maximum: .seconds(5)).ceiling(failures: 1) == .seconds(5))
        #expect(ReconnectBackoff(initial: .nanoseconds(1), maximum: .hours(9)).ceiling(failures: 63) == .hours(9))
    }

    @Test("spreads each wait from nothing to its limit")
    func jitter() {
        let backoff = ReconnectBackoff(initial: .milliseconds(50), maximum: .seconds(5))
        #expect(backoff.delay(failures: 3, random: 0) == .zero)
        #expect(backoff.delay(failures: 3, random: 0.5) == .milliseconds(100))
        #expect(backoff.delay(failures: 3, random: 1) == .milliseconds(200))
    }

    @Test("goes on from the longer wait while connections do not last, and from the shortest once one did")
    func flapping() {
        var state = ReconnectState(backoff: ReconnectBackoff())
        var now = start
        #expect(state.start() == true)
        var waits: [TimeAmount?] = []
        for _ in 0..<4 {
            _ = state.connected(at: now)
            now = now + .milliseconds(1)
            waits.append(state.failed(at: now, random: 1)?.delay)
            #expect(state.waited() == true)
        }
        #expect(waits == [50, 100, 200, 400].map { .milliseconds($0) })
        _ = state.connected(at: now)
        now = now + .seconds(10)
        #expect(state.failed(at: now, random: 1)?.delay == .milliseconds(50))
    }

    @Test("reports the first failure, then one in thirty seconds, and the end of the outage")
    func reports() {
        var state = ReconnectState(backoff: ReconnectBackoff())
        _ = state.start()
        var reported: [Int] = []
        for second in 0..<70 {
            if state.failed(at: start + .seconds(Int64(second)), random: 1)?.isReported == true {
                reported.append(second)
            }
            #expect(state.waited() == true)
        }
        #expect(reported == [0, 30, 60])
        let end = state.connected(at: start + .seconds(70))
        #expect(end.isWanted)
        #expect(end.recovery == ReconnectState.Recovery(after: .seconds(70), failures: 70))
        #expect(state.failed(at: start + .seconds(71), random: 1)?.isReported == true)
    }

    @Test("the first connection of all ends no outage")
    func first() {
        var state = ReconnectState(backoff: ReconnectBackoff())
        _ = state.start()
        #expect(state.connected(at: start).recovery == nil)
    }

    @Test("starts once, and wants nothing after it is closed")
    func closed() {
        var state = ReconnectState(backoff: ReconnectBackoff())
        #expect(state.start() == true)
        #expect(state.start() == false)
        state.close()
        #expect(state.connected(at: start).isWanted == false)
        #expect(state.failed(at: start, random: 1) == nil)
        #expect(state.waited() == false)
    }
}
