import Logging
import NIOCore
import NIOPosix
import PushQueue
import PushWorker
import Redis
import ServiceLifecycle

/// Watches the queue while a worker works on it: draws a progress bar, and ends when nothing is left to do.
struct QueueWatch: Service {
    let configuration: WorkerConfiguration
    let worker: Worker
    let showsProgress: Bool
    let stopsWhenDone: Bool

    private struct Depth {
        var jobs = 0
        var retries = 0
        var claims = 0
        var total: Int { jobs + retries + claims }
    }

    func run() async throws {
        let client = RedisClient(
            endpoint: configuration.redis, eventLoop: MultiThreadedEventLoopGroup.singleton.next(),
            logger: Logger(label: "watch", factory: { _ in SwiftLogNoOpLogHandler() }))
        client.start()
        await cancelWhenGracefulShutdown {
            var first = 0
            let started = NIODeadline.now()
            while !Task.isCancelled {
                // A queue that cannot be asked is not done; the worker's own log tells what is wrong.
                if let depth = try? await depth(client) {
                    let counters = await worker.counters()
                    first = max(first, depth.total + counters.settled)
                    if showsProgress { draw(depth, counters, of: first, since: started) }
                    if stopsWhenDone, depth.total == 0 { break }
                }
                try? await Task.sleep(for: .milliseconds(100))
            }
        }
        if showsProgress { Terminal.tell("\n") }
        try? await client.close().get()
    }

    private func depth(_ client: RedisClient) async throws -> Depth {
        let keys = configuration.queueKeys
        var depth = Depth()
        depth.jobs = try await client.call(RedisCommand("LLEN", keys.jobs)).root.integer ?? 0
        depth.retries = try await client.call(RedisCommand("ZCARD", keys.retry)).root.integer ?? 0
        for worker in try await client.call(RedisCommand("ZRANGE", keys.workers, "0", "-1")).root.children {
            guard let name = worker.string else { continue }
            depth.claims += try await client.call(RedisCommand("HLEN", keys.claimed(name))).root.integer ?? 0
            depth.claims += try await client.call(RedisCommand("LLEN", keys.inbox(name))).root.integer ?? 0
        }
        return depth
    }

    private func draw(_ depth: Depth, _ counters: LaneCounters, of total: Int, since start: NIODeadline) {
        let done = max(0, total - depth.total)
        let share = total > 0 ? Double(done) / Double(total) : 1
        let width = 32
        let filled = Int(share * Double(width))
        let bar = String(repeating: "█", count: filled) + String(repeating: "░", count: width - filled)
        let seconds = max(Double((NIODeadline.now() - start).nanoseconds) / 1e9, 0.001)
        let rate = Int(Double(counters.delivered) / seconds)
        let counts = "\(done)/\(total) settled  \(depth.retries) to retry  \(rate)/s"
        Terminal.tell("\r\(bar) \(Int(share * 100)) %  \(counts) \u{1B}[K")
    }
}

extension LaneCounters {
    /// Notifications that have ended.
    fileprivate var settled: Int { delivered + invalid + expired + dropped + dead }
}
