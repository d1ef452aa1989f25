import NIOCore
import PrintableText
import PushQueue
import QueueTestSupport
import Redis
import TestSupport
import Testing

@testable import Operations

@Suite("Pausing a queue", .queue)
struct QueuePauseTests {
    private let queue = QueueScope.queue

    @Test("a paused queue returns no jobs, whatever the reason, until the pause is ended")
    func pause() async throws {
        let worker = queue.worker("w")
        try queue.push(["a"])
        for reason in ["maintenance", "", "\u{1B}[31m\0é\nzwei"] {
            try await QueuePause.set(queue.client, queue.keys, PauseRecord(reason: reason))
            let claimed = try await worker.claim(10)
            #expect(claimed.isPaused && claimed.bodies.isEmpty)
            #expect(try await QueuePause.read(queue.client, queue.keys)?.reason == reason.printable)
        }
        #expect(try await QueuePause.clear(queue.client, queue.keys))
        #expect(try await QueuePause.read(queue.client, queue.keys)?.reason == nil)
        #expect(try await !QueuePause.clear(queue.client, queue.keys))
        #expect(try await worker.claimTexts(10) == ["a"])
    }

    @Test("a pause that is not a string pauses too, and can be ended")
    func wrongType() async throws {
        try queue.redis.run("RPUSH", queue.keys.paused, "something else")
        #expect(try await queue.worker("w").claim(1).isPaused)
        await #expect(throws: RedisError.self) { try await QueuePause.read(queue.client, queue.keys) }
        #expect(try await QueuePause.clear(queue.client, queue.keys))
        #expect(try await !queue.worker("w").claim(1, join: false).isPaused)
    }

    @Test("a reason that is not text is shown with replacement characters")
    func notText() async throws {
        try queue.redis.run([Array("SET".utf8), Array(queue.keys.paused.utf8), [0x61, 0xFF, 0x62]])
        #expect(try await QueuePause.read(queue.client, queue.keys)?.reason == "a\u{FFFD}b")
    }
}
