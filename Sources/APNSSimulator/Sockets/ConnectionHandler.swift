import Glibc
import NIOCore
import NIOPosix
import TLS

/// The state machine of one connection, without its socket. It receives bytes and the time. It returns actions, and the time of the next
/// action.
protocol SimulatorConnection {
    /// Adds the connection, or the refused client, to the account.
    /// - Parameter handshake: nil if the handshake failed because of the client's certificate.
    /// - Returns: nil to close the socket.
    init?(_ service: SimulatedService, _ handshake: TLSHandshakeCompleted?, at moment: SimulatedMoment) throws
    mutating func receive(_ bytes: UnsafeRawBufferPointer, at moment: SimulatedMoment)
    /// Returns the next action, if one is due.
    mutating func next(at moment: SimulatedMoment) -> SocketStep?
    /// The time to call ``next(at:)``, in microseconds of uptime; nil if nothing is scheduled.
    var nextTime: Int64? { get }
    /// Begins the end of the connection.
    /// - Returns: false if there is nothing left to send.
    mutating func shutDown(reason: String, at moment: SimulatedMoment) -> Bool
    /// Stops answering requests over HTTP/2.
    mutating func wedge()
    /// Records that the socket is being dropped.
    mutating func drop()
    /// Records that the socket has closed.
    mutating func closed()
}

extension SimulatorConnection {
    mutating func wedge() {}
    mutating func closed() {}
}

/// An action of a connection's state machine on its socket.
enum SocketStep: Equatable {
    /// Send these bytes in a separate write.
    case write(ByteBuffer)
    /// Close this side, and read until the client has closed too.
    case close
    /// Let the client close. Close after 250 ms if the client does not.
    case linger
    /// Close without close_notify.
    case drop
    /// End the connection with a TCP reset.
    case reset
    /// Keep the connection open, and stop reading.
    case stopReading

    static func send(_ bytes: [UInt8]) -> SocketStep { .write(ByteBuffer(bytes: bytes)) }
}

/// Connects a channel and a timer to a ``SimulatorConnection``.
final class ConnectionHandler<Connection: SimulatorConnection>: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    private let service: SimulatedService
    private let tls: TLSHandler
    private var connection: Connection?
    private let wakeUp = WakeUp()
    // The reason of a shutdown before the end of the TLS handshake.
    private var pendingShutdown: String?

    init(_ service: SimulatedService, tls: TLSHandler) {
        self.service = service
        self.tls = tls
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        switch event {
        case let handshake as TLSHandshakeCompleted: open(handshake, context)
        case ConnectionEvent.shutDown(let reason):
            pendingShutdown = reason
            shutDown(reason, context)
        case ConnectionEvent.wedge: connection?.wedge()
        case ConnectionEvent.drop:
            connection?.drop()
            end()
            drop(context)
        default: break
        }
        context.fireUserInboundEventTriggered(event)
    }

    private func open(_ handshake: TLSHandshakeCompleted, _ context: ChannelHandlerContext) {
        do {
            connection = try Connection(service, handshake, at: .now())
        } catch {
            context.fireErrorCaught(error)
        }
        guard connection != nil else { return context.close(promise: nil) }
        if let pendingShutdown { shutDown(pendingShutdown, context) } else { proceed(context) }
    }

    private func shutDown(_ reason: String, _ context: ChannelHandlerContext) {
        if connection?.shutDown(reason: reason, at: .now()) == true { return proceed(context) }
        end()
        context.close(promise: nil)
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        unwrapInboundIn(data).withUnsafeReadableBytes { connection?.receive($0, at: .now()) }
    }

    func channelReadComplete(context: ChannelHandlerContext) {
        proceed(context)
        context.fireChannelReadComplete()
    }

    func channelWritabilityChanged(context: ChannelHandlerContext) {
        proceed(context)
        context.fireChannelWritabilityChanged()
    }

    func channelInactive(context: ChannelHandlerContext) {
        end()
        context.fireChannelInactive()
    }

    func handlerRemoved(context: ChannelHandlerContext) { end() }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        if connection == nil, let error = error as? TLSError, error.isAboutClientCertificate {
            do { connection = try Connection(service, nil, at: .now()) } catch { context.fireErrorCaught(error) }
        }
        // A simulator must tolerate clients that break off or fail their handshake.
        context.close(promise: nil)
    }

    private func end() {
        wakeUp.cancel()
        connection?.closed()
        connection = nil
    }

    // A write can change writability and re-enter this function. This is safe, because `next` has already changed the connection's state.
    // While the client does not read, the remaining answers wait in the connection.
    private func proceed(_ context: ChannelHandlerContext) {
        while context.channel.isWritable, let step = connection?.next(at: .now()) {
            switch step {
            case .write(let bytes): context.writeAndFlush(wrapOutboundOut(bytes), promise: nil)
            case .close: close(context)
            case .linger:
                context.eventLoop.assumeIsolated().scheduleTask(in: .milliseconds(250)) { context.close(promise: nil) }
            case .drop: drop(context)
            case .reset: reset(context)
            case .stopReading: stopReading(context)
            }
        }
        wakeUp.set(at: connection?.nextTime, on: context.eventLoop) { self.proceed(context) }
    }

    // MARK: The ways to end a connection

    /// Closes this side when everything is sent. Closes the connection when the client has closed too, or after a second. If the socket
    /// were closed with unread bytes, the kernel would discard the last bytes sent.
    private func close(_ context: ChannelHandlerContext) {
        let closed = context.eventLoop.makePromise(of: Void.self)
        closed.futureResult.assumeIsolated().whenComplete { result in
            guard case .success = result else { return self.drop(context) }
            context.eventLoop.assumeIsolated().scheduleTask(in: .seconds(1)) { self.drop(context) }
        }
        context.close(mode: .output, promise: closed)
    }

    private func reset(_ context: ChannelHandlerContext) {
        guard let socket = context.channel as? any SocketOptionProvider else { return drop(context) }
        // With a linger time of 0, the kernel sends a reset when the socket is closed. If the option cannot be set, the socket is already
        // closed.
        socket.setSoLinger(linger(l_onoff: 1, l_linger: 0)).assumeIsolated().whenComplete { _ in self.drop(context) }
    }

    /// Closes the connection without close_notify.
    private func drop(_ context: ChannelHandlerContext) {
        guard context.channel.isActive else { return }
        // Closing through the TLS handler would send close_notify. Closing from its place in the pipeline bypasses it.
        do {
            try context.pipeline.syncOperations.context(handler: tls).close(promise: nil)
        } catch {
            context.close(promise: nil)
        }
    }

    private func stopReading(_ context: ChannelHandlerContext) {
        do {
            try context.channel.syncOptions?.setOption(.autoRead, value: false)
        } catch {
            context.close(promise: nil)
        }
    }
}

extension TLSError {
    /// True if the handshake failed because of the client's certificate, or the lack of one.
    fileprivate var isAboutClientCertificate: Bool {
        switch kind {
        case .certificateExpired, .certificateNotYetValid, .untrustedCertificate, .certificateRejected,
            .peerCertificateMissing:
            true
        default: false
        }
    }
}
