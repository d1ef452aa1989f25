import NIOConcurrencyHelpers
import NIOCore
import NIOPosix
import Testing

@testable import Sockets

@Suite("A time limit")
struct StandstillTests {
    @Test("ends only after everything that was due before it, if the event loop stood still")
    func late() async throws {
        let loop = MultiThreadedEventLoopGroup.singleton.next()
        let events = NIOLockedValueBox<[String]>([])
        let over = loop.makePromise(of: Void.self)
        try await loop.submit {
            let start = loop.now
            _ = TimeLimit(at: start + .milliseconds(10), on: loop) {
                events.withLockedValue { $0.append("over") }
                over.succeed(())
            }
            // This task is due after the limit, like an answer that arrived while the loop stood still.
            loop.scheduleTask(deadline: start + .milliseconds(20)) { events.withLockedValue { $0.append("answer") } }
            while loop.now - start < .milliseconds(500) {}
        }.get()
        try await over.futureResult.get()
        #expect(events.withLockedValue { $0 } == ["answer", "over"])
    }

    @Test("ends on time otherwise, and not at all once it is cancelled")
    func onTime() async throws {
        let loop = MultiThreadedEventLoopGroup.singleton.next()
        let events = NIOLockedValueBox<[String]>([])
        let over = loop.makePromise(of: Void.self)
        try await loop.submit {
            let cancelled = TimeLimit(in: .milliseconds(5), on: loop) {
                events.withLockedValue { $0.append("cancelled") }
            }
            cancelled.cancel()
            _ = TimeLimit(in: .milliseconds(20), on: loop) { over.succeed(()) }
        }.get()
        try await over.futureResult.get()
        #expect(events.withLockedValue { $0 }.isEmpty)
    }

    @Test("A past time is moved by a standstill, but not beyond the present")
    func moved() {
        let now = NIODeadline.uptimeNanoseconds(100_000_000_000)
        #expect((now - .seconds(10)).moved(by: .seconds(4), now: now) == now - .seconds(6))
        #expect((now - .seconds(1)).moved(by: .seconds(4), now: now) == now)
        #expect(NIODeadline.distantPast.moved(by: .seconds(4), now: now) == .distantPast)
        #expect(Standstill.duration(due: now - .milliseconds(100), now: now) == nil)
        #expect(Standstill.duration(due: now - .seconds(6), now: now) == .seconds(6))
    }
}
