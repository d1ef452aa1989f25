import NIOCore
import Testing

@testable import APNS

@Suite("Bytes that belong to no answer")
struct FloodGaugeTests {
    private let start = NIODeadline.uptimeNanoseconds(1_000_000_000_000)

    @Test("is bounded, and one byte more is a flood")
    func bounded() {
        var gauge = FloodGauge()
        gauge.received(FloodGauge.burst)
        #expect(!gauge.isOverflowing(inFlight: 0))
        gauge.received(1)
        #expect(gauge.isOverflowing(inFlight: 0))
    }

    @Test("decays with time, at the same rate however often it is read")
    func forgotten() {
        for steps in [1, 7, 400] {
            var gauge = FloodGauge()
            gauge.check(now: start)
            gauge.received(FloodGauge.burst)
            for step in 1...steps { gauge.check(now: start + .milliseconds(Int64(4000 * step / steps))) }
            #expect(abs(gauge.level - (FloodGauge.burst - 4 * FloodGauge.leak)) <= steps * 17)
            gauge.check(now: start + .hours(1000))
            #expect(gauge.level == 0)
        }
    }

    @Test("does not include answers, however many and however their pieces are mixed")
    func answers() {
        var gauge = FloodGauge()
        for _ in 0..<1_000_000 {
            gauge.received(200)
            gauge.requestEnded()
        }
        #expect(gauge.level == 0)
        // A thousand answers of 20 KiB, none of which ends before all have arrived.
        for left in (1...1000).reversed() {
            gauge.received(20 * 1024)
            #expect(!gauge.isOverflowing(inFlight: 1000), "\(left)")
        }
        for left in (0..<1000).reversed() {
            gauge.requestEnded()
            #expect(!gauge.isOverflowing(inFlight: left))
        }
        #expect(gauge.level == 0)
    }
}
