import APNS
import NIOCore
import NIOPosix
import Sockets

/// One connection to a feedback service. The service sends everything it has, forgets it, and closes.
///
/// Nothing is read before it is requested, so a slow consumer makes the service wait.
///
/// Source: Apple, "Local and Remote Notification Programming Guide" (archived), "The Feedback Service".
public struct FeedbackSession: LoopBound {
    /// The size in bytes of the kernel's receive buffer. When the service closes, all of it is read into memory at
    /// once.
    private static let receiveBuffer = 256 * 1024

    private let handler: NIOLoopBound<FeedbackHandler>
    private let channel: any Channel

    /// Connects to a service, such as `APNSEndpoint/productionFeedback`, with the app's certificate and without ALPN.
    /// - Parameter silence: the maximum time without data while the connection is open.
    /// - Throws: ``FeedbackError``.
    public static func connect(
        _ dialer: Dialer, silence: TimeAmount = .seconds(60)
    ) async throws -> FeedbackSession {
        let eventLoop = MultiThreadedEventLoopGroup.singleton.any()
        let channel: any Channel
        do {
            channel = try await eventLoop.flatSubmit {
                dialer.connect(on: eventLoop) {
                    $0.channelOption(.socketOption(.so_rcvbuf), value: .init(receiveBuffer))
                }
            }.get()
        } catch {
            throw FeedbackError.connection(dialer.cannotConnect(error))
        }
        let connected = channel.eventLoop.makePromise(of: Void.self)
        let handler = try await channel.eventLoop.submit {
            try start(dialer, silence, on: channel, connected)
        }.get()
        let address = channel.remoteAddress
        connected.futureResult.whenComplete { AddressMemory.shared.note($0, at: address) }
        try await connected.futureResult.get()
        return FeedbackSession(handler: handler, channel: channel)
    }

    /// Starts the session on a channel whose TCP connection is established. Call this on the channel's event loop.
    private static func start(
        _ dialer: Dialer, _ silence: TimeAmount, on channel: any Channel, _ connected: EventLoopPromise<Void>
    ) throws -> NIOLoopBound<FeedbackHandler> {
        let handler = FeedbackHandler(
            FeedbackSessionState(dialer.endpoint, handshake: dialer.connectTimeout, silence: silence), on: channel,
            connected: connected)
        do {
            try channel.pipeline.syncOperations.addHandler(handler)
            try dialer.secure(channel, onTLS: { handler.handshakeBegan() })
        } catch {
            channel.close(promise: nil)
            connected.fail(FeedbackError.connection(dialer.cannotConnect(error)))
        }
        return NIOLoopBound(handler, eventLoop: channel.eventLoop)
    }

    /// Waits for the next tuples. Allows one call at a time.
    /// - Parameter count: the maximum number to return. Tuples that have been received are returned without waiting for
    ///   more.
    /// - Returns: an empty array when the service has sent everything and closed the connection.
    /// - Throws: ``FeedbackError``, after all tuples received before it have been returned.
    public func next(atMost count: Int) async throws -> [FeedbackTuple] {
        try await channel.eventLoop.flatSubmit {
            let promise = channel.eventLoop.makePromise(of: [FeedbackTuple].self)
            handler.value.next(atMost: count, promise)
            return promise.futureResult
        }.get()
    }

    /// Makes the session end within a few seconds. Until then ``next(atMost:)`` returns what the service has already sent, because the
    /// service has forgotten it. Then ``next(atMost:)`` throws ``FeedbackError/stopped(_:)``, unless the service has reached its end.
    public func stop() {
        channel.eventLoop.execute { handler.value.stop() }
    }

    /// Returns the number of received bytes that are not yet a whole tuple.
    public func incompleteBytes() async throws -> Int {
        try await channel.eventLoop.submit { handler.value.state.tuples.remainingBytes }.get()
    }

    /// Returns the number of tuples without a token, which were skipped.
    public func skippedTuples() async throws -> Int {
        try await channel.eventLoop.submit { handler.value.state.tuples.skipped }.get()
    }

    public func close() {
        channel.close(promise: nil)
    }
}

/// Decides when to poll a feedback service, without any I/O.
public struct FeedbackSchedule: Sendable {
    private let interval: TimeAmount
    public private(set) var next: NIODeadline

    /// - Parameters:
    ///   - interval: the time from the beginning of one poll to the next.
    ///   - random: from 0 to 1, evenly distributed. Delays the first poll, so that processes started together do not poll together.
    public init(interval: TimeAmount, now: NIODeadline, random: Double) {
        self.interval = interval
        let spread = min(interval.nanoseconds / 10, TimeAmount.minutes(1).nanoseconds)
        next = now + .nanoseconds(Int64(Double(spread) * min(max(random, 0), 1)))
    }

    /// Records the end of a poll. Polls that were missed in the meantime are skipped.
    public mutating func finished(now: NIODeadline) {
        let late = max(0, (now - next).nanoseconds)
        next = next + .nanoseconds((late / interval.nanoseconds + 1) * interval.nanoseconds)
    }
}
