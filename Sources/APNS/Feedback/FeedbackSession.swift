import NIOCore
import NIOPosix
import TLS

/// One connection to a feedback service, which sends all it has, forgets that, and closes.
///
/// Nothing is read before it is asked for: when what takes the tuples is slow, the service has to wait.
///
/// Source: Apple, "Local and Remote Notification Programming Guide" (archived), "The Feedback Service".
public struct FeedbackSession: Sendable {
    /// How to connect, and as whom.
    public struct Configuration: Sendable {
        /// The service, such as ``APNSEndpoint/productionFeedback``.
        public var endpoint: APNSEndpoint
        /// Trust, and the app's certificate. Without ALPN.
        public var tls: TLSContext
        /// The proxy to connect through.
        public var proxy: HTTPProxy?
        /// How long TCP may take, the proxy's answer, and TLS.
        public var connectTimeout = TimeAmount.seconds(10)
        /// For how long the service may send nothing without closing the connection.
        public var silence = TimeAmount.seconds(60)

        /// Takes what has no default.
        public init(endpoint: APNSEndpoint, tls: TLSContext) {
            self.endpoint = endpoint
            self.tls = tls
        }
    }

    /// The bytes that the kernel may hold before they are read: when the service closes, all of it is in
    /// memory at once.
    private static let receiveBuffer = 256 * 1024

    private let handler: NIOLoopBound<FeedbackHandler>
    private let channel: any Channel

    /// Connects.
    /// - Throws: ``FeedbackError``.
    public static func connect(
        _ configuration: Configuration, group: any EventLoopGroup = MultiThreadedEventLoopGroup.singleton
    ) async throws -> FeedbackSession {
        let dialer = Dialer(
            endpoint: configuration.endpoint, tls: configuration.tls, proxy: configuration.proxy,
            timeout: configuration.connectTimeout)
        let channel: any Channel
        do {
            channel = try await dialer.connect(on: group) {
                $0.channelOption(.socketOption(.so_rcvbuf), value: .init(receiveBuffer))
            }.get()
        } catch {
            throw FeedbackError.connection(dialer.cannotConnect(error))
        }
        let connected = channel.eventLoop.makePromise(of: Void.self)
        let handler = try await channel.eventLoop.submit {
            try start(configuration, dialer, on: channel, connected)
        }.get()
        try await connected.futureResult.get()
        return FeedbackSession(handler: handler, channel: channel)
    }

    /// Takes over a channel on which TCP is set up; on its event loop.
    private static func start(
        _ configuration: Configuration, _ dialer: Dialer, on channel: any Channel, _ connected: EventLoopPromise<Void>
    ) throws -> NIOLoopBound<FeedbackHandler> {
        var limits = FeedbackSessionState.Limits()
        limits.handshake = configuration.connectTimeout
        limits.silence = configuration.silence
        let handler = FeedbackHandler(
            FeedbackSessionState(configuration.endpoint, limits), on: channel, connected: connected)
        do {
            try channel.pipeline.syncOperations.addHandler(handler)
            try dialer.secure(channel, onTLS: { handler.handshakeBegan() })
        } catch {
            channel.close(promise: nil)
            connected.fail(FeedbackError.connection(dialer.cannotConnect(error)))
        }
        return NIOLoopBound(handler, eventLoop: channel.eventLoop)
    }

    /// Waits for the next tuples; one call at a time.
    /// - Parameter count: how many are taken at the most. What has come is given at once: nothing waits for more to come.
    /// - Returns: nothing when the service has sent all, and closed the connection.
    /// - Throws: ``FeedbackError``, when all that came before has been given.
    public func next(atMost count: Int) async throws -> [FeedbackTuple] {
        try await channel.eventLoop.flatSubmit {
            let promise = channel.eventLoop.makePromise(of: [FeedbackTuple].self)
            handler.value.next(atMost: count, promise)
            return promise.futureResult
        }.get()
    }

    /// Lets it end soon: what the service has sent is forgotten there, so that is still given, for a few seconds at the most; then
    /// ``next(atMost:)`` throws ``FeedbackError/stopped(_:)``, unless the service has come to its end.
    public func stop() {
        channel.eventLoop.execute { handler.value.stop() }
    }

    /// How many bytes came of a tuple that did not come whole.
    public func incompleteBytes() async throws -> Int {
        try await channel.eventLoop.submit { handler.value.incompleteBytes }.get()
    }

    /// Hangs up.
    public func close() {
        channel.close(promise: nil)
    }
}

/// Why a feedback service was not read to its end. What was read before it is good.
public enum FeedbackError: Error, Sendable, CustomStringConvertible {
    /// No connection could be made, or it did not last.
    case connection(APNSConnectionError)
    /// TLS could not be set up, or broke.
    case tls(TLSError)
    /// The received bytes are not those of a feedback service.
    case malformed(APNSEndpoint, FeedbackTuples.Malformed)
    /// It closed the connection in the middle of a tuple, of which so many bytes had come.
    case incomplete(APNSEndpoint, bytes: Int)
    /// We ended it while it was not at its end.
    case stopped(APNSEndpoint)

    /// The problem, its place, and what to do.
    public var description: String {
        switch self {
        case .connection(let error): "\(error)"
        case .tls(let error): "\(error)"
        case .malformed(let endpoint, let error):
            "\(endpoint) does not speak the feedback service's protocol: \(error); is it a feedback service?"
        case .incomplete(let endpoint, let bytes):
            "\(endpoint) closed the connection in the middle of a tuple, after \(bytes) bytes of it"
        case .stopped(let endpoint): "\(endpoint) was not read to the end, because this process is stopping"
        }
    }
}

/// When a feedback service is asked again and again, without any I/O.
public struct FeedbackSchedule: Sendable {
    private let interval: TimeAmount
    /// When it is asked next.
    public private(set) var next: NIODeadline

    /// - Parameters:
    ///   - interval: from one beginning to the next.
    ///   - random: from 0 to 1, evenly spread: many that are started together do not ask together.
    public init(interval: TimeAmount, now: NIODeadline, random: Double) {
        self.interval = interval
        let spread = min(interval.nanoseconds / 10, TimeAmount.minutes(1).nanoseconds)
        next = now + .nanoseconds(Int64(Double(spread) * min(max(random, 0), 1)))
    }

    /// It has been asked. What should have been done in the meantime is left out.
    public mutating func finished(now: NIODeadline) {
        let late = max(0, (now - next).nanoseconds)
        next = next + .nanoseconds((late / interval.nanoseconds + 1) * interval.nanoseconds)
    }
}
