import NIOCore
import Sockets
import TLS

/// Connects a ``FeedbackSessionState`` to a socket. It reads only when tuples are requested.
final class FeedbackHandler: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer

    private(set) var state: FeedbackSessionState
    private let channel: any Channel
    private let connected: EventLoopPromise<Void>
    private var asked: (count: Int, promise: EventLoopPromise<[FeedbackTuple]>)?
    private var timer: TimeLimit?

    /// - Parameter connected: succeeds when TLS is set up, and fails if it cannot be.
    init(_ state: FeedbackSessionState, on channel: any Channel, connected: EventLoopPromise<Void>) {
        self.state = state
        self.channel = channel
        self.connected = connected
    }

    /// Starts the timeout of the handshake.
    func handshakeBegan() {
        state.handshakeBegan(now: .now())
        changed()
    }

    /// Completes the promise with at least one tuple, or with none at the end of the session.
    func next(atMost count: Int, _ promise: EventLoopPromise<[FeedbackTuple]>) {
        precondition(asked == nil, "one at a time")
        asked = (count, promise)
        changed()
    }

    func stop() {
        state.stop(now: .now())
        changed()
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        if event is TLSHandshakeCompleted {
            // From now on, data is read only when tuples are requested. Until then, it waits in the network.
            do {
                try context.channel.syncOptions?.setOption(.autoRead, value: false)
            } catch {
                state.failed(error)
            }
            state.handshakeCompleted()
            connected.succeed()
            changed()
        }
        context.fireUserInboundEventTriggered(event)
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        state.received(unwrapInboundIn(data), now: .now())
        changed()
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        state.failed(error)
        changed()
        context.close(promise: nil)
    }

    func channelInactive(context: ChannelHandlerContext) {
        state.closed()
        changed()
        context.fireChannelInactive()
    }

    func handlerRemoved(context: ChannelHandlerContext) {
        state.closed()
        changed()
    }

    private func changed() {
        answer()
        if state.hasEnded, !state.isConnected, case .end(let error?) = state.next(atMost: 1, now: .now()) {
            connected.fail(error)
        }
        timer?.cancel()
        timer = state.deadline.map { deadline in
            TimeLimit(at: deadline, on: channel.eventLoop) {
                self.state.timePassed(now: .now())
                self.changed()
                if self.state.hasEnded { self.channel.close(promise: nil) }
            }
        }
    }

    private func answer() {
        guard let (count, promise) = asked else { return }
        switch state.next(atMost: count, now: .now()) {
        case .wait: channel.read()
        case .tuples(let tuples):
            asked = nil
            promise.succeed(tuples)
        case .end(let error):
            asked = nil
            if let error { promise.fail(error) } else { promise.succeed([]) }
        }
    }
}
