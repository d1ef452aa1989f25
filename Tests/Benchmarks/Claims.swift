import ArgumentParser
import Logging
import NIOCore
import NIOPosix
import PushQueue
import Redis

/// Claims and settles what waits in a queue.
struct Claims: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Claim and settle a queue's jobs until none is left.",
        discussion: "Prints a JSON array with the bytes of jobs that each claim returned; the last returns none.")

    @Option(help: "A private Redis, as redis://127.0.0.1:PORT. Its jobs are used up.") var redis: String

    func run() async throws {
        let loop = MultiThreadedEventLoopGroup.singleton.next()
        let client = RedisClient(
            endpoint: try RedisEndpoint(url: redis), eventLoop: loop,
            logger: Logger(label: "claims", factory: { _ in SwiftLogNoOpLogHandler() }))
        client.start()
        try await client.waitUntilReady(timeout: .seconds(10))
        let keys = try QueueKeys()
        let promise = loop.makePromise(of: [Int].self)
        loop.execute { Claimer(client: client, keys: keys, promise: promise).claim() }
        let sizes = try await promise.futureResult.get()
        try await client.close().get()
        print("[\(sizes.map(String.init).joined(separator: ","))]")
    }
}

/// Claims as many jobs at once as a lane does. Belongs to the event loop.
private final class Claimer {
    private static let count = 256

    private let queue: QueueConnection
    private let promise: EventLoopPromise<[Int]>
    private var sizes: [Int] = []
    private var first = 1

    init(client: RedisClient, keys: QueueKeys, promise: EventLoopPromise<[Int]>) {
        queue = QueueConnection(client: client, keys: keys, worker: "bench", limits: QueueLimits())
        self.promise = promise
    }

    func claim() {
        queue.claim(count: Self.count, first: first, join: sizes.isEmpty) { [self] result in
            switch result {
            case .success(let claimed):
                sizes.append(claimed.bodies.reduce(0) { $0 + $1.readableBytes })
                guard !claimed.bodies.isEmpty else { return promise.succeed(sizes) }
                let numbers = first..<first + claimed.bodies.count
                first = numbers.upperBound
                settle(numbers, claimed.stamp)
            case .failure(let error): promise.fail(error)
            }
        }
    }

    private func settle(_ numbers: Range<Int>, _ stamp: String) {
        var settlement = Settlement()
        for number in numbers { settlement.end(ClaimID(number: number, stamp: stamp), .delivered) }
        queue.settle(settlement) { [self] result in
            switch result {
            case .success(let settled) where settled.lost > 0:
                promise.fail(ValidationError("\(settled.lost) claims were lost"))
            case .success: claim()
            case .failure(let error): promise.fail(error)
            }
        }
    }
}
