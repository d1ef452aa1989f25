import ArgumentParser
import Glibc
import Logging
import NIOCore
import NIOPosix
import PushQueue
import Redis

/// Claims and settles the waiting jobs of a queue.
struct Claims: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Claim and settle a queue's jobs until none is left.",
        discussion: """
            Prints a JSON array. An element is an array of a claim's bytes of jobs, and the microseconds of CPU that Redis took
            from the command to the reply. The last claim returns no jobs.
            """)

    @Option(help: "A private Redis, as redis://127.0.0.1:PORT. Its jobs are used up.") var redis: String
    @Option(help: "The process ID of that Redis.") var redisPid: Int32

    func run() async throws {
        let loop = MultiThreadedEventLoopGroup.singleton.next()
        let client = RedisClient(
            topology: try RedisTopology(url: redis), eventLoop: loop,
            logger: Logger(label: "claims", factory: { _ in SwiftLogNoOpLogHandler() }))
        client.start()
        try await client.waitUntilReady(timeout: .seconds(10))
        let keys = try QueueKeys()
        let promise = loop.makePromise(of: [Claim].self)
        let clock = try ProcessClock(of: redisPid)
        loop.execute { Claimer(client: client, keys: keys, clock: clock, promise: promise).claim() }
        let claims = try await promise.futureResult.get()
        try await client.close().get()
        print("[\(claims.map { "[\($0.bytes),\($0.microseconds)]" }.joined(separator: ","))]")
    }
}

private struct Claim {
    var bytes: Int
    var microseconds: Int64
}

/// The CPU time of another process.
private struct ProcessClock {
    private let id: clockid_t

    init(of process: Int32) throws {
        var id = clockid_t()
        guard clock_getcpuclockid(process, &id) == 0 else { throw ValidationError("there is no process \(process)") }
        self.id = id
    }

    var microseconds: Int64 {
        var time = timespec()
        clock_gettime(id, &time)
        return Int64(time.tv_sec) * 1_000_000 + Int64(time.tv_nsec) / 1000
    }
}

/// Claims as many jobs at once as a lane does. Belongs to the event loop.
private final class Claimer {
    private static let count = 256

    private let queue: QueueConnection
    private let clock: ProcessClock
    private let promise: EventLoopPromise<[Claim]>
    private var claims: [Claim] = []
    private var first = 1

    init(client: RedisClient, keys: QueueKeys, clock: ProcessClock, promise: EventLoopPromise<[Claim]>) {
        queue = QueueConnection(client: client, keys: keys, worker: "bench", limits: QueueLimits())
        self.clock = clock
        self.promise = promise
    }

    func claim() {
        let start = clock.microseconds
        queue.claim(ClaimRequest(count: Self.count, first: first, join: claims.isEmpty)) { [self] result in
            switch result {
            case .success(let claimed):
                let bytes = claimed.bodies.reduce(0) { $0 + $1.readableBytes }
                claims.append(Claim(bytes: bytes, microseconds: clock.microseconds - start))
                guard !claimed.bodies.isEmpty else { return promise.succeed(claims) }
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
