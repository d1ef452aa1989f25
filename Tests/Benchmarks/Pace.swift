import ArgumentParser
import FoundationEssentials
import Logging
import NIOCore
import NIOPosix
import PushQueue
import Redis

/// Pushes jobs at an even rate, each with the time at which it was pushed.
struct Pace: AsyncParsableCommand {
    static let configuration = CommandConfiguration(abstract: "Push jobs at an even rate, with their time in them.")

    @Option(help: "The job, a file with @id@, @token@ and @sent@ in it.") var job: String
    @Option(help: "Redis, as redis://127.0.0.1:PORT.") var redis: String
    @Option(help: "Jobs a second.") var rate = 1000
    @Option(help: "For how many seconds.") var seconds = 20

    func run() async throws {
        guard (1...100_000).contains(rate), (1...86_400).contains(seconds) else {
            throw ValidationError("--rate must be 1 to 100000, and --seconds 1 to 86400")
        }
        let loop = MultiThreadedEventLoopGroup.singleton.next()
        let client = RedisClient(
            topology: try RedisTopology(url: redis), eventLoop: loop,
            logger: Logger(label: "pace", factory: { _ in SwiftLogNoOpLogHandler() }))
        client.start()
        try await client.waitUntilReady(timeout: .seconds(10))
        let (sample, key) = (try SampleJob(file: job), try QueueKeys().jobs)
        let promise = loop.makePromise(of: Void.self)
        let (rate, total) = (rate, rate * seconds)
        loop.execute {
            Pacer(sample: sample, key: key, client: client, rate: rate, total: total, promise: promise).start(on: loop)
        }
        try await promise.futureResult.get()
        try await client.close().get()
        print("{\"pushed\":\(total)}")
    }
}

/// Pushes the jobs that are due, one per command as producers do. Belongs to the client's event loop.
private final class Pacer {
    private let sample: SampleJob
    private let key: String
    private let client: RedisClient
    private let rate: Int
    private let total: Int
    private let promise: EventLoopPromise<Void>
    private var pushed = 0
    private var confirmed = 0
    private var began = NIODeadline.now()

    init(
        sample: SampleJob, key: String, client: RedisClient, rate: Int, total: Int, promise: EventLoopPromise<Void>
    ) {
        self.sample = sample
        self.key = key
        self.client = client
        self.rate = rate
        self.total = total
        self.promise = promise
    }

    func start(on loop: any EventLoop) {
        began = .now()
        schedule(loop)
    }

    // Due times count from the beginning, so a late turn catches up and the rate is kept.
    private func schedule(_ loop: any EventLoop) {
        guard pushed < total else { return }
        let next = began + .nanoseconds(Int64(pushed) * 1_000_000_000 / Int64(rate))
        loop.assumeIsolated().scheduleTask(deadline: next) { [self] in
            let due = Int((NIODeadline.now() - began).nanoseconds * Int64(rate) / 1_000_000_000) + 1
            while pushed < min(due, total) { push() }
            schedule(loop)
        }
    }

    private func push() {
        var command = RedisCommand("RPUSH", expecting: 2, bytes: 512)
        command.append(key)
        command.append(sample.job(number: pushed, sent: Int64(Date().timeIntervalSince1970 * 1_000_000)))
        pushed += 1
        client.send(command) { [self] result in
            if case .failure(let error) = result { promise.fail(error) }
            confirmed += 1
            if confirmed == total { promise.succeed(()) }
        }
    }
}
