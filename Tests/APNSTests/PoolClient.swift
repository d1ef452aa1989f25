import Logging
import NIOConcurrencyHelpers
import NIOCore
import NIOPosix
import TLS
import TestSupport
import Testing

@testable import APNS

/// A pool of HTTP/2 connections.
typealias PoolClient = TransportClient<ConnectionPool>

/// A transport on an event loop, with a queue for notifications that exceed its capacity.
struct TransportClient<Pool: Transport & SendableMetatype>: Sendable {
    /// The part that belongs to the event loop.
    final class Core: TransportDelegate {
        typealias Waiting = CircularBuffer<(tag: UInt64, notification: Notification)>

        let pool: Pool
        var ticker: RepeatedTask?
        /// The transport's other events.
        var notes: [String] = []
        private var waiting = Dictionary(uniqueKeysWithValues: Isolation.allCases.map { ($0, Waiting()) })
        private var promises: [UInt64: EventLoopPromise<RequestResult>] = [:]
        private var nextTag: UInt64 = 1

        init(pool: Pool) {
            self.pool = pool
            pool.delegate = self
        }

        func send(_ notification: Notification, _ isolation: Isolation, _ promise: EventLoopPromise<RequestResult>) {
            promises[nextTag] = promise
            waiting[isolation]?.append((nextTag, notification))
            nextTag += 1
            pump(isolation)
        }

        private func pump(_ isolation: Isolation) {
            // Taken out first: a submission can complete others, which calls this again.
            while let (tag, notification) = waiting[isolation]?.popFirst() {
                guard !pool.submit(notification, tag: tag, in: isolation) else { continue }
                waiting[isolation]?.prepend((tag, notification))
                return pool.requestCapacity(in: isolation)
            }
        }

        func stop() {
            ticker?.cancel()
            for promise in promises.values { promise.fail(CancellationError()) }
            promises = [:]
            for isolation in Isolation.allCases { waiting[isolation]?.removeAll() }
        }

        func transport(_: any Transport, completed tag: UInt64, with result: RequestResult) {
            // A tag that is unknown, or is completed twice, would stop the test here.
            guard let promise = promises.removeValue(forKey: tag) else { preconditionFailure("an unknown tag") }
            promise.succeed(result)
        }

        func transportChanged(_ pool: any Transport) { Isolation.allCases.forEach(pump) }
    }

    let eventLoop: any EventLoop
    let log: RecordedLog
    private let core: NIOLoopBound<Core>

    /// - Parameters:
    ///   - eventLoop: nil for one shared with other tests and with servers.
    ///   - ticks: true to call the pool's `check` periodically.
    ///   - make: makes the pool.
    static func start(
        on eventLoop: (any EventLoop)? = nil, ticks: Bool = true,
        _ make: @escaping @Sendable (any EventLoop, Logger) -> Pool
    ) async throws -> TransportClient {
        let log = RecordedLog()
        let eventLoop = eventLoop ?? MultiThreadedEventLoopGroup.singleton.next()
        return try await eventLoop.submit {
            let core = Core(pool: make(eventLoop, Logger(label: "test") { _ in log.handler }))
            core.pool.setProviderToken("e30.e30.c2ln")
            let bound = NIOLoopBound(core, eventLoop: eventLoop)
            guard ticks else { return TransportClient(eventLoop: eventLoop, log: log, core: bound) }
            core.ticker = eventLoop.scheduleRepeatedTask(initialDelay: .zero, delay: .milliseconds(10)) { _ in
                bound.value.pool.check(now: eventLoop.now)
            }
            return TransportClient(eventLoop: eventLoop, log: log, core: bound)
        }.get()
    }

    /// Sends in one tick of the event loop. A future fails only if its notification was not sent when the pool was
    /// closed.
    func send(
        _ notifications: [Notification], in isolation: Isolation = .shared
    ) -> [EventLoopFuture<RequestResult>] {
        let promises = notifications.map { _ in eventLoop.makePromise(of: RequestResult.self) }
        let core = core
        eventLoop.execute {
            for (notification, promise) in zip(notifications, promises) {
                core.value.send(notification, isolation, promise)
            }
        }
        return promises.map(\.futureResult)
    }

    func send(_ notification: Notification = .example()) -> EventLoopFuture<RequestResult> { send([notification])[0] }

    /// Sends this many notifications, and waits for all results.
    func results(_ count: Int) async throws -> [RequestResult] {
        var results: [RequestResult] = []
        for future in send((0..<count).map { .example($0) }) { results.append(try await future.get()) }
        return results
    }

    /// Calls a function with the pool, on its event loop.
    func ask<Answer: Sendable>(_ question: @escaping @Sendable (Pool) -> Answer) async throws -> Answer {
        let core = core
        return try await eventLoop.submit { question(core.value.pool) }.get()
    }

    /// Returns the transport's other events.
    func notes() async throws -> [String] {
        let core = core
        return try await eventLoop.submit { core.value.notes }.get()
    }

    /// Closes like a worker: requests in flight are finished.
    func close() async throws {
        let core = core
        try await eventLoop.flatSubmit { core.value.pool.close() }.get()
        try await eventLoop.submit { core.value.stop() }.get()
    }

    /// Runs a body, and closes at once afterwards.
    func closingAfter<Result>(_ body: (Self) async throws -> Result) async throws -> Result {
        do {
            let result = try await body(self)
            try await closeNow()
            return result
        } catch {
            try await closeNow()
            throw error
        }
    }

    /// Closes at once.
    func closeNow() async throws {
        let core = core
        try await eventLoop.flatSubmit {
            core.value.pool.closeNow()
            return core.value.pool.close()
        }.get()
        try await eventLoop.submit { core.value.stop() }.get()
    }
}

extension PoolClient {
    /// - Parameters:
    ///   - eventLoop: nil for one shared with other tests and with servers.
    ///   - host: the host to connect to and verify.
    ///   - ticks: true to call the pool's `check` periodically.
    static func start(
        on eventLoop: (any EventLoop)? = nil, host: String = "127.0.0.1", port: Int, trusted: String = "ca.pem",
        ticks: Bool = true,
        _ change: @Sendable (inout ConnectionPool.Configuration) -> Void = { _ in }
    ) async throws -> PoolClient {
        var tls = TLSClientConfiguration()
        tls.trust = .file(try TestCertificates.path(trusted))
        tls.applicationProtocols = ["h2"]
        var configuration = ConnectionPool.Configuration(
            endpoint: APNSEndpoint(host: host, port: port), tls: try TLSContext.client(tls))
        configuration.maximumConnections = 1
        change(&configuration)
        return try await start(on: eventLoop, ticks: ticks) { [configuration] eventLoop, logger in
            ConnectionPool(configuration, eventLoop: eventLoop, logger: logger)
        }
    }
}

/// Runs a body with a pool, and closes the pool at once afterwards.
func withPool<Result>(
    host: String = "127.0.0.1", port: Int, trusted: String = "ca.pem",
    _ change: @Sendable (inout ConnectionPool.Configuration) -> Void = { _ in },
    _ body: (PoolClient) async throws -> Result
) async throws -> Result {
    let client = try await PoolClient.start(host: host, port: port, trusted: trusted, change)
    return try await client.closingAfter(body)
}

extension Notification {
    /// Returns a notification whose token ends with a number.
    static func example(_ number: Int = 0, payload: String = #"{"aps":{"alert":"x"}}"#) -> Notification {
        let digits = String(number, radix: 16)
        let hex = String(repeating: "0", count: 64 - digits.count) + digits
        do {
            return Notification(
                deviceToken: try DeviceToken(hex), payload: ByteBuffer(string: payload),
                topic: ByteBuffer(string: "com.example.app"))
        } catch {
            preconditionFailure("\(error)")
        }
    }
}

extension RequestResult {
    static let delivered = RequestResult.response(Response(status: 200))
}

extension [RequestResult] {
    static func delivered(_ count: Int) -> [RequestResult] { Array(repeating: .delivered, count: count) }
}

/// Expects a request to have this result.
func expect(
    _ future: EventLoopFuture<RequestResult>, _ expected: RequestResult,
    sourceLocation: SourceLocation = #_sourceLocation
) async throws {
    var result = try await future.get()
    // Servers of others answer without an ID.
    if expected == .delivered, case .response(var response) = result, response.origin == .unnamed {
        response.origin = .apns
        result = .response(response)
    }
    #expect(result == expected, sourceLocation: sourceLocation)
}
