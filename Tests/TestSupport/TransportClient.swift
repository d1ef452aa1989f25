import APNS
import Logging
import NIOCore
import NIOPosix
import Sockets

/// A transport on an event loop, and a queue of the notifications that exceed its capacity.
package struct TransportClient<Pool: Transport & SendableMetatype>: LoopBound {
    /// The part that only the event loop uses.
    package final class Core: TransportDelegate {
        typealias Waiting = CircularBuffer<(tag: UInt64, notification: Notification)>

        let pool: Pool
        var ticker: RepeatedTask?
        /// The events of the transport that are not results.
        package var notes: [String] = []
        package var keepsUniqueIDs = false
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
            // The notification must leave the queue first, because its submission can complete others and re-enter this function.
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

        package func transport(_: any Transport, completed tag: UInt64, with result: RequestResult) {
            // A tag that is unknown, or completed twice, ends the test here.
            guard let promise = promises.removeValue(forKey: tag) else { preconditionFailure("an unknown tag") }
            promise.succeed(result)
        }

        package func transportChanged(_ pool: any Transport) { Isolation.allCases.forEach(pump) }
    }

    package let eventLoop: any EventLoop
    package let log: RecordedLog
    private let core: NIOLoopBound<Core>

    /// - Parameters:
    ///   - eventLoop: `nil` for an event loop that other tests and servers also use.
    ///   - ticks: true to call the transport's `check` periodically.
    ///   - make: makes the transport.
    package static func start(
        on eventLoop: (any EventLoop)? = nil, ticks: Bool = true,
        _ make: @escaping @Sendable (any EventLoop, Logger) -> Pool
    ) async throws -> TransportClient {
        let log = RecordedLog()
        let eventLoop = eventLoop ?? MultiThreadedEventLoopGroup.singleton.next()
        return try await eventLoop.submit {
            let core = Core(pool: make(eventLoop, log.logger()))
            core.pool.setProviderToken("e30.e30.c2ln")
            let bound = NIOLoopBound(core, eventLoop: eventLoop)
            guard ticks else { return TransportClient(eventLoop: eventLoop, log: log, core: bound) }
            core.ticker = eventLoop.scheduleRepeatedTask(initialDelay: .zero, delay: .milliseconds(10)) { _ in
                bound.value.pool.check(now: eventLoop.now)
            }
            return TransportClient(eventLoop: eventLoop, log: log, core: bound)
        }.get()
    }

    /// Sends all in one tick of the event loop. A future fails only if its notification is still unsent when the transport is closed.
    package func send(
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

    package func send(_ notification: Notification = .example()) -> EventLoopFuture<RequestResult> {
        send([notification])[0]
    }

    package func results(_ count: Int) async throws -> [RequestResult] {
        var results: [RequestResult] = []
        for future in send((0..<count).map { .example($0) }) { results.append(try await future.get()) }
        return results
    }

    /// Calls a function with the transport on its event loop.
    package func ask<Answer: Sendable>(_ question: @escaping @Sendable (Pool) -> Answer) async throws -> Answer {
        let core = core
        return try await eventLoop.submit { question(core.value.pool) }.get()
    }

    /// The number of connections and of free places of a transport; true if it is dormant; true if it accepts a notification.
    package typealias State = (connections: Int, capacity: Int, isDormant: Bool, accepts: Bool)

    /// Requests capacity from a transport without connections.
    /// - Returns: the state before the first connection is usable (`before`), and afterwards (`after`).
    package func requestFirstConnection() async throws -> (before: State, after: State) {
        try await ask { pool in
            func state(_ connections: Int) -> State {
                (connections, pool.capacity, pool.isDormant, pool.submit(.example(), tag: 99, in: .shared))
            }
            let before = state(pool.usableConnections)
            pool.requestCapacity()
            return (before, state(pool.statistics.connecting))
        }
    }

    package func keepUniqueIDs(_ keeps: Bool) async throws {
        let core = core
        try await eventLoop.submit {
            core.value.keepsUniqueIDs = keeps
            core.value.pool.check(now: .now())
        }.get()
    }

    package func notes() async throws -> [String] {
        let core = core
        return try await eventLoop.submit { core.value.notes }.get()
    }

    /// Closes as a worker does: waits for the requests in flight.
    package func close() async throws {
        let core = core
        try await eventLoop.flatSubmit { core.value.pool.close() }.get()
        try await eventLoop.submit { core.value.stop() }.get()
    }

    package func closingAfter<Result>(_ body: (Self) async throws -> Result) async throws -> Result {
        try await running({ try await body(self) }, thenAlways: closeNow)
    }

    /// Closes without waiting for requests in flight.
    package func closeNow() async throws {
        let core = core
        try await eventLoop.flatSubmit {
            core.value.pool.closeNow()
            return core.value.pool.close()
        }.get()
        try await eventLoop.submit { core.value.stop() }.get()
    }
}

extension Notification {
    /// Returns a notification whose token ends with a number.
    package static func example(_ number: Int = 0, payload: String = #"{"aps":{"alert":"x"}}"#) -> Notification {
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
