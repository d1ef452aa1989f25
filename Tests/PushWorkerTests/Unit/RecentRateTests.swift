import NIOCore
import PushQueue
import Testing

@testable import PushWorker

@Suite("The rate of the last minute")
struct RecentRateTests {
    private let start = NIODeadline.uptimeNanoseconds(1_000_000_000)

    @Test("is zero before there are two readings, and then their difference")
    func first() {
        var rate = RecentRate()
        #expect(rate.update(500, now: start) == 0)
        #expect(rate.update(500, now: start) == 0)
        #expect(rate.update(530, now: start + .seconds(3)) == 10)
        #expect(rate.update(530, now: start + .seconds(6)) == 5)
    }

    @Test("ignores older readings")
    func window() {
        var rate = RecentRate()
        for second in 0...600 {
            // The count grows by a hundred per second for five minutes, and then stops.
            let value = rate.update(min(second, 300) * 100, now: start + .seconds(Int64(second)))
            if (60...300).contains(second) { #expect(value == 100) }
            if second >= 360 { #expect(value == 0) }
        }
    }

    @Test("is the same however often it is read")
    func often() {
        var rate = RecentRate()
        for look in 0...10_000 {
            let value = rate.update(look, now: start + .milliseconds(Int64(look) * 10))
            if look > 200 { #expect(abs(value - 100) < 0.001) }
        }
    }
}

@Suite("Commands to a worker")
struct WorkerCommandsTests {
    @Test("are carried out once, on however many queues they are seen, unless a later one replaced them")
    func once() {
        var commands = WorkerCommands()
        #expect(commands.isNew(.init(.quiet, at: 10)) == true)
        #expect(commands.isNew(.init(.quiet, at: 10)) == false)
        #expect(commands.isNew(.init(.work, at: 20)) == true)
        #expect(commands.isNew(.init(.quiet, at: 10)) == false)
        #expect(commands.isNew(.init(.work, at: 20)) == false)
        #expect(commands.isNew(.init(.stop, at: 21)) == true)
    }
}
