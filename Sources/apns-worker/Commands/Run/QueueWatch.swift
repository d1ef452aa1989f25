import Glibc
import Logging
import NIOCore
import NIOPosix
import PushQueue
import PushWorker
import Redis
import ServiceLifecycle

/// Watches the queue while a worker works on it: shows a progress bar, and ends when there is nothing left to do.
struct QueueWatch: Service {
    let configuration: WorkerConfiguration
    let worker: Worker
    let showsProgress: Bool
    let stopsWhenDone: Bool
    /// True if the progress is redrawn in place.
    private let isTerminal = isatty(STDERR_FILENO) == 1
    /// The interval between lines without a terminal.
    private static let interval = TimeAmount.seconds(10)
    /// The queue's depth before the worker began.
    private var initialDepth = 0

    init(configuration: WorkerConfiguration, worker: Worker, showsProgress: Bool, stopsWhenDone: Bool) async {
        self.configuration = configuration
        self.worker = worker
        self.showsProgress = showsProgress
        self.stopsWhenDone = stopsWhenDone
        guard showsProgress else { return }
        let clients = makeClients()
        // If Redis cannot be reached, the bar starts later; the worker's log has the reason.
        for client in clients { _ = try? await client.waitUntilReady(timeout: .seconds(2)) }
        if let depth = try? await depth(clients) { initialDepth = depth.total }
        await close(clients)
    }

    /// Returns one client per queue, because in a Cluster the queues can be on different servers.
    private func makeClients() -> [RedisClient] {
        var redis = configuration.redisClient
        redis.clientName = "apns-worker:\(configuration.workerName):watch"
        return configuration.queues.map { queue in
            let client = RedisClient(
                topology: configuration.redis, key: queue.keys.jobs,
                eventLoop: MultiThreadedEventLoopGroup.singleton.next(), configuration: redis,
                logger: Logger(label: "watch", factory: { _ in SwiftLogNoOpLogHandler() }))
            client.start()
            return client
        }
    }

    private func close(_ clients: [RedisClient]) async {
        for client in clients { try? await client.close().get() }
    }

    private func depth(_ clients: [RedisClient]) async throws -> (total: Int, retries: Int) {
        var sum = (total: 0, retries: 0)
        for (client, queue) in zip(clients, configuration.queues) {
            let gauges = try await QueueGauges.read(client, queue.keys)
            sum.total += gauges.total
            sum.retries += gauges.failed
        }
        return sum
    }

    func run() async throws {
        let clients = makeClients()
        await cancelWhenGracefulShutdown {
            // `done` is derived from the decrease of the depth, because an answered job stays claimed until Redis has settled it.
            var (done, previous, drawn) = (0, initialDepth, "")
            let started = NIODeadline.now()
            var written = started
            while !Task.isCancelled {
                // An unreachable queue is not done; the worker's log has the problem.
                if let depth = try? await depth(clients) {
                    done += max(0, previous - depth.total)
                    previous = depth.total
                    if showsProgress {
                        let line = line(depth, done: done, await worker.counters(), since: started)
                        if !isTerminal {
                            if NIODeadline.now() - written >= Self.interval {
                                Terminal.note("progress \(line)\n")
                                written = .now()
                            }
                        } else if line != drawn {
                            Terminal.note("\r\(line)\u{1B}[K")
                        }
                        drawn = line
                    }
                    if stopsWhenDone, depth.total == 0 { break }
                }
                try? await Task.sleep(for: .milliseconds(100))
            }
            // On a terminal the last state is already shown.
            if showsProgress { Terminal.note(isTerminal ? "\n" : drawn.isEmpty ? "" : "progress \(drawn)\n") }
        }
        await close(clients)
    }

    private func line(
        _ depth: (total: Int, retries: Int), done: Int, _ counters: LaneCounters, since start: NIODeadline
    ) -> String {
        let total = done + depth.total
        let share = total > 0 ? Double(done) / Double(total) : 1
        let seconds = max(Double((NIODeadline.now() - start).nanoseconds) / 1e9, 0.001)
        let rate = Int(Double(counters[.delivered]) / seconds)
        let counts = "\(done)/\(total) settled  \(depth.retries) to retry  \(rate)/s"
        guard isTerminal else { return "\(Int(share * 100)) %  \(counts)" }
        let width = 32
        let filled = Int(share * Double(width))
        let bar = String(repeating: "█", count: filled) + String(repeating: "░", count: width - filled)
        return "\(bar) \(Int(share * 100)) %  \(counts)"
    }
}
