import NIOCore
import TLS

/// Connects a channel and a timer to a ``GatewayConnection``.
final class GatewayHandler: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    private let service: SimulatedService
    private let tls: TLSHandler
    private var connection: GatewayConnection?
    private let wakeUp = WakeUp()

    init(_ service: SimulatedService, tls: TLSHandler) {
        self.service = service
        self.tls = tls
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        if let handshake = event as? TLSHandshakeCompleted {
            connection = GatewayConnection(
                service, client: GatewayClient(handshake.peerCertificate, service.configuration), at: .now())
            proceed(context)
        } else if event is SimulatorShutdown {
            guard connection != nil else { return context.close(promise: nil) }
            connection?.shutDown(at: .now())
            proceed(context)
        } else if event is SimulatorDrop {
            connection?.drop(at: .now())
            SocketEnding.drop(context, tls)
        }
        context.fireUserInboundEventTriggered(event)
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        unwrapInboundIn(data).withUnsafeReadableBytes { connection?.receive($0, at: .now()) }
    }

    func channelReadComplete(context: ChannelHandlerContext) {
        proceed(context)
        context.fireChannelReadComplete()
    }

    func channelInactive(context: ChannelHandlerContext) {
        end()
        context.fireChannelInactive()
    }

    func handlerRemoved(context: ChannelHandlerContext) { end() }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        if connection == nil, let error = error as? TLSError, error.isAboutClientCertificate {
            service.clientRefused()
        }
        // A simulator must tolerate clients that break off or fail their handshake.
        context.close(promise: nil)
    }

    private func end() {
        wakeUp.cancel()
        connection = nil
    }

    private func proceed(_ context: ChannelHandlerContext) {
        while let step = connection?.next(at: .now()) {
            switch step {
            case .send(let bytes): context.writeAndFlush(wrapOutboundOut(ByteBuffer(bytes: bytes)), promise: nil)
            case .close: SocketEnding.close(context, tls)
            case .reset: SocketEnding.reset(context, tls)
            case .stopReading: stopReading(context)
            }
        }
        wakeUp.set(at: connection?.nextTime, on: context.eventLoop) { self.proceed(context) }
    }

    private func stopReading(_ context: ChannelHandlerContext) {
        do {
            try context.channel.syncOptions?.setOption(.autoRead, value: false)
        } catch {
            context.close(promise: nil)
        }
    }
}
