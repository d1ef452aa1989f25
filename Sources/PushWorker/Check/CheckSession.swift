import APNS
import Logging
import NIOCore
import Sockets

/// A connection to APNs for a check: a pool with one connection, used from a task.
///
/// `@unchecked Sendable`, because all state is accessed only on `eventLoop`.
final class CheckSession: TransportDelegate, LoopBound, @unchecked Sendable {
    private let pool: any Transport
    private let eventLoop: any EventLoop
    private var opened: CheckedContinuation<Void, any Error>?
    private var answered: CheckedContinuation<RequestResult, any Error>?
    private var ticker: RepeatedTask?

    private init(_ pool: any Transport, eventLoop: any EventLoop) {
        self.pool = pool
        self.eventLoop = eventLoop
    }

    private struct TimedOut: Error, CustomStringConvertible {
        let description = "no connection in time; can this host reach it? Check the firewall"
    }

    /// Opens a connection.
    /// - Throws: the reason why there is no connection.
    static func open(
        _ app: AppConfiguration, on eventLoop: any EventLoop, within patience: TimeAmount
    ) async throws -> CheckSession {
        var app = app
        (app.minimumConnections, app.maximumConnections) = (1, 1)
        let configuration = try TransportConfiguration(app)
        let session = try await eventLoop.submit {
            let pool = configuration.make(
                on: eventLoop, logger: Logger(label: "check", factory: { _ in SwiftLogNoOpLogHandler() }))
            let session = CheckSession(pool, eventLoop: eventLoop)
            pool.delegate = session
            return session
        }.get()
        do {
            try await withCheckedThrowingContinuation { continuation in
                eventLoop.execute {
                    session.opened = continuation
                    session.ticker = eventLoop.scheduleRepeatedTask(
                        initialDelay: .zero, delay: .milliseconds(100)
                    ) { _ in session.pool.check(now: eventLoop.now) }
                    eventLoop.scheduleTask(in: patience) { session.finishOpening(TimedOut()) }
                }
            }
        } catch {
            await session.close()
            throw error
        }
        return session
    }

    /// Sends a notification and waits for its result.
    /// - Parameter now: seconds since 1970.
    func send(
        _ notification: Notification, _ source: ProviderTokenSource?, now: Int64
    ) async throws -> RequestResult {
        let token = try source?.token(now: now).jwt
        return try await withCheckedThrowingContinuation { continuation in
            eventLoop.execute { [self] in
                pool.setProviderToken(token)
                answered = continuation
                if !pool.submit(notification, tag: 0, in: .shared) {
                    finish(.notProcessed(.connectionLost("the connection was closed")))
                }
            }
        }
    }

    func close() async {
        do {
            try await eventLoop.flatSubmit { [self] in
                ticker?.cancel()
                return pool.close()
            }.get()
        } catch {
            // Closing a pool can't fail.
            assertionFailure("\(error)")
        }
    }

    let keepsUniqueIDs = true

    func transport(_: any Transport, completed _: UInt64, with result: RequestResult) { finish(result) }

    func transportChanged(_ pool: any Transport) {
        if pool.capacity > 0 {
            finishOpening(nil)
        } else if let failure = pool.lastFailure {
            finishOpening(failure)
        }
    }

    private func finishOpening(_ failure: (any Error)?) {
        guard let opened else { return }
        self.opened = nil
        if let failure { opened.resume(throwing: failure) } else { opened.resume() }
    }

    private func finish(_ result: RequestResult) {
        answered?.resume(returning: result)
        answered = nil
    }
}
