import NIOCore
import TestSupport
import Testing

@testable import PushWorker

@Suite("Readiness")
struct ReadinessTests {
    private var readiness = Readiness()
    let start = NIODeadline.uptimeNanoseconds(1_000_000_000)

    @Test("is not logged if it is lost only for a moment")
    mutating func moment() {
        #expect(readiness.update(isReady: false, now: start) == nil)
        #expect(readiness.update(isReady: false, now: start + .milliseconds(999)) == nil)
        #expect(readiness.update(isReady: true, now: start + .milliseconds(999)) == nil)
        #expect(readiness.update(isReady: false, now: start + .milliseconds(1500)) == nil)
    }

    @Test("is logged once when it is lost, and once when it is regained")
    mutating func once() {
        #expect(readiness.update(isReady: false, now: start) == nil)
        #expect(readiness.update(isReady: false, now: start + .seconds(1)) == .lost)
        #expect(readiness.update(isReady: false, now: start + .seconds(3600)) == nil)
        #expect(readiness.update(isReady: true, now: start + .seconds(3601)) == .regained)
        #expect(readiness.update(isReady: true, now: start + .seconds(3602)) == nil)
    }

    @Test("alternates between lost and regained, in any order of events", arguments: 0..<100)
    mutating func anyOrder(seed: UInt64) {
        var random = SeededGenerator(seed: seed)
        var now = start
        var (isLost, isReady) = (false, true)
        for _ in 0..<500 {
            now = now + .milliseconds(Int64.random(in: 0...700, using: &random))
            if Int.random(in: 0..<4, using: &random) == 0 { isReady.toggle() }
            switch readiness.update(isReady: isReady, now: now) {
            case .lost:
                #expect(!isLost && !isReady)
                isLost = true
            case .regained:
                #expect(isLost && isReady)
                isLost = false
            case nil: break
            }
        }
    }
}
