import NIOCore
import TLS

/// Connects a channel and timers to a ``SimulatedConnection``.
final class SimulatorHandler: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    /// The time that a finished connection waits for the client to close. Closing with unread bytes in the socket would
    /// make the kernel discard the last answers.
    private static let linger = TimeAmount.milliseconds(250)

    private let service: SimulatedService
    private let tls: TLSHandler
    private var connection: SimulatedConnection?
    private let wakeUp = WakeUp()
    private var isClosing = false
    // The reason of a shutdown that arrived before the TLS handshake ended.
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
            if let connection {
                connection.shutDown(reason: reason)
                flush(context)
            } else {
                context.close(promise: nil)
            }
        case ConnectionEvent.wedge: connection?.wedge()
        case ConnectionEvent.drop:
            connection?.drop()
            flush(context)
            drop(context)
        default: break
        }
        context.fireUserInboundEventTriggered(event)
    }

    private func open(_ handshake: TLSHandshakeCompleted, _ context: ChannelHandlerContext) {
        // APNs speaks HTTP/2 only, which must be negotiated by ALPN.
        guard handshake.applicationProtocol == "h2" else {
            var counters = PushCounters()
            counters.protocolErrors = 1
            service.add(counters)
            return context.close(promise: nil)
        }
        do {
            connection = try SimulatedConnection(
                service, certificate: ClientCertificate(handshake.peerCertificate), at: .now())
            if let pendingShutdown { connection?.shutDown(reason: pendingShutdown) }
            flush(context)
        } catch {
            context.fireErrorCaught(error)
            context.close(promise: nil)
        }
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        // Bytes that arrive after the end are discarded.
        guard !isClosing else { return }
        let buffer = unwrapInboundIn(data)
        do {
            try buffer.withUnsafeReadableBytes { bytes in
                try connection?.receive(bytes, at: .now())
            }
        } catch {
            // Bytes that are not HTTP/2 are the client's error, which is counted; nghttp2 may have queued a GOAWAY.
            flush(context)
            finish(context)
        }
    }

    func channelReadComplete(context: ChannelHandlerContext) {
        flush(context)
        context.fireChannelReadComplete()
    }

    func channelInactive(context: ChannelHandlerContext) {
        end()
        context.fireChannelInactive()
    }

    func handlerRemoved(context: ChannelHandlerContext) { end() }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        // A simulator must tolerate clients that break off or fail their handshake.
        context.close(promise: nil)
    }

    private func end() {
        wakeUp.cancel()
        connection?.closed()
        connection = nil
    }

    private func flush(_ context: ChannelHandlerContext) {
        guard let connection else { return }
        var buffer = context.channel.allocator.buffer(capacity: 16 * 1024)
        do {
            try connection.write(into: &buffer)
        } catch {
            context.close(promise: nil)
            return
        }
        if buffer.readableBytes > 0 { context.writeAndFlush(wrapOutboundOut(buffer), promise: nil) }
        switch connection.end {
        case .dropped: drop(context)
        case .finished: finish(context)
        case nil:
            wakeUp.set(at: connection.nextTime, on: context.eventLoop) {
                self.connection?.advance(to: .now())
                self.flush(context)
            }
        }
    }

    private func drop(_ context: ChannelHandlerContext) {
        guard !isClosing else { return }
        isClosing = true
        SocketEnding.drop(context, tls)
    }

    private func finish(_ context: ChannelHandlerContext) {
        guard !isClosing else { return }
        isClosing = true
        context.eventLoop.assumeIsolated().scheduleTask(in: Self.linger) { context.close(promise: nil) }
    }
}
