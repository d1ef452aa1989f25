import NIOCore
import TLS

/// Connects a channel and a timer to a ``FeedbackDelivery``.
final class FeedbackHandler: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    private let service: SimulatedService
    private let tls: TLSHandler
    private var delivery: FeedbackDelivery?
    private let wakeUp = WakeUp()

    init(_ service: SimulatedService, tls: TLSHandler) {
        self.service = service
        self.tls = tls
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        if let handshake = event as? TLSHandshakeCompleted {
            if GatewayClient(handshake.peerCertificate, service.configuration) == .refused {
                service.feedbackClientRefused()
                SocketEnding.close(context, tls)
            } else {
                delivery = service.feedbackConnectionOpened()
                proceed(context)
            }
        } else if event is SimulatorShutdown {
            // Records that were not sent stay on the list.
            end()
            context.close(promise: nil)
        } else if event is SimulatorDrop {
            end()
            SocketEnding.drop(context, tls)
        }
        context.fireUserInboundEventTriggered(event)
    }

    // Clients of the feedback service send nothing.
    func channelRead(context: ChannelHandlerContext, data: NIOAny) {}

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
        if delivery == nil, let error = error as? TLSError, error.isAboutClientCertificate {
            service.feedbackClientRefused()
        }
        context.close(promise: nil)
    }

    private func end() {
        wakeUp.cancel()
        delivery = nil
    }

    private func proceed(_ context: ChannelHandlerContext) {
        // While the client does not read, the remaining records stay on the list.
        while context.channel.isWritable, var delivery {
            let step = delivery.next(at: SimulatedMoment.now().uptime) { service.takeFeedback($0) }
            // A write can change writability and re-enter this function, so the state is stored first.
            self.delivery = delivery
            guard let step else { break }
            switch step {
            case .send(let bytes): context.writeAndFlush(wrapOutboundOut(ByteBuffer(bytes: bytes)), promise: nil)
            case .close: SocketEnding.close(context, tls)
            }
        }
        wakeUp.set(at: delivery?.nextTime, on: context.eventLoop) { self.proceed(context) }
    }
}
