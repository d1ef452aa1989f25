import NIOCore
import Sockets
import Testing

@Suite("Pauses between attempts")
struct BackoffTests {
    @Test("are up to twice as long after each failure, and never longer than the longest")
    func limit() {
        let backoff = Backoff(first: .milliseconds(50), longest: .seconds(5))
        let expected: [Int64] = [50, 100, 200, 400, 800, 1600, 3200, 5000, 5000]
        #expect((1...9).map { backoff.limit(failures: $0) } == expected.map { .milliseconds($0) })
        #expect(backoff.limit(failures: .max) == .seconds(5))
        #expect(Backoff(first: .seconds(9), longest: .seconds(5)).limit(failures: 1) == .seconds(5))
        #expect(Backoff(first: .nanoseconds(1), longest: .hours(9)).limit(failures: 63) == .hours(9))
    }

    @Test(
        "are spread from the least share of their limit to all of it",
        arguments: [(0, [0, 100, 200]), (0.5, [100, 150, 200]), (1, [200, 200, 200])] as [(Double, [Int64])])
    func spread(least: Double, milliseconds: [Int64]) {
        let backoff = Backoff(first: .milliseconds(50), longest: .seconds(5), least: least)
        let pauses = [0, 0.5, 1].map { backoff.pause(failures: 3, random: $0) }
        #expect(pauses == milliseconds.map { .milliseconds($0) })
    }

    @Test("are never shorter than requested, and spread also then", arguments: [0, 0.5, 1])
    func requested(random: Double) {
        let backoff = Backoff(first: .seconds(1), longest: .seconds(32), least: 0.5)
        func pause(_ failures: Int, _ requested: Int64) -> TimeAmount {
            backoff.pause(failures: failures, requested: .seconds(requested), random: random)
        }
        #expect(pause(1, 30) == .milliseconds(30_000 + Int64(1000 * random)))
        // The computed pause is longer than the requested one.
        #expect(pause(6, 1) == backoff.pause(failures: 6, random: random))
    }
}
