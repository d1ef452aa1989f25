import HTTPTypes
import NIOCore
import NIOHTTP1
import NIOHTTPTypes
import Synchronization

/// Watches the bytes of a connection of a port; ``RequestWatch`` watches its requests.
final class ConnectionGuard: ChannelDuplexHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundIn = ByteBuffer

    fileprivate(set) var state: PortConnection
    private let channel: any Channel
    /// Called once, when the connection has ended.
    var onEnd: ((ObjectIdentifier) -> Void)?

    init(_ state: PortConnection, _ channel: any Channel) {
        self.state = state
        self.channel = channel
    }

    func close() { channel.close(promise: nil) }

    /// Measures how many bytes of answers the peer has not received.
    func measure(now: NIODeadline) {
        // An error means that the channel is closed.
        let unsent = try? channel.syncOptions?.getOption(.bufferedWritableBytes)
        state.holds(unsent ?? 0, now: now)
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        // Closing with unread bytes would reset the connection, and the client could lose the answer. So input after the last answer is
        // read and discarded for a while.
        guard !state.isClosing else { return }
        state.bytesReceived(now: context.eventLoop.now)
        context.fireChannelRead(data)
    }

    func channelReadComplete(context: ChannelHandlerContext) {
        guard !state.isClosing else { return context.read() }
        context.fireChannelReadComplete()
    }

    func close(context: ChannelHandlerContext, mode: CloseMode, promise: EventLoopPromise<Void>?) {
        if mode == .output {
            state.outputClosed(now: context.eventLoop.now)
            context.close(mode: mode, promise: promise)
            context.read()
        } else {
            context.close(mode: mode, promise: promise)
        }
    }

    func channelInactive(context: ChannelHandlerContext) {
        end()
        context.fireChannelInactive()
    }

    func handlerRemoved(context: ChannelHandlerContext) { end() }

    private func end() {
        onEnd?(ObjectIdentifier(self))
        onEnd = nil
    }
}

/// Reports the requests of a connection of a port to its ``ConnectionGuard``.
final class RequestWatch: ChannelDuplexHandler, RemovableChannelHandler {
    typealias InboundIn = HTTPRequestPart
    typealias OutboundIn = HTTPResponsePart

    private var connection: ConnectionGuard?

    func handlerAdded(context: ChannelHandlerContext) {
        // The port adds the guard to each connection first. Without a guard, requests are not reported.
        connection = try? context.pipeline.syncOperations.handler(type: ConnectionGuard.self)
    }

    func handlerRemoved(context: ChannelHandlerContext) { connection = nil }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        switch unwrapInboundIn(data) {
        case .head: connection?.state.requestBegan()
        case .body: break
        case .end: connection?.state.requestEnded()
        }
        context.fireChannelRead(data)
    }

    func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
        if case .end = unwrapOutboundIn(data) { connection?.state.answerEnded(now: context.eventLoop.now) }
        context.write(data, promise: promise)
    }
}

/// Meets three expectations of clients:
/// - A client of HTTP/1.0 reads until the end of the connection. The connection is closed after the answer, unless the client asks to keep
///   it (RFC 9112 §9.3).
/// - Some clients send a body only after `100 Continue`, and some of them wait for it without a time limit (RFC 9110 §10.1.1).
/// - The last answer of a stopping port has `Connection: close`, so that the client sends its next request on another connection (RFC 9112
///   §9.6). Otherwise the request could be lost.
final class ClientExpectations: ChannelDuplexHandler {
    typealias InboundIn = HTTPServerRequestPart
    typealias OutboundIn = HTTPServerResponsePart
    typealias OutboundOut = HTTPServerResponsePart

    private let stop: PortStop
    private var closes = false

    init(_ stop: PortStop) { self.stop = stop }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        if case .head(let head) = unwrapInboundIn(data) {
            closes = head.version.major == 1 && head.version.minor == 0 && !head.isKeepAlive
            if head.version.minor > 0, head.headers["expect"].contains(where: { $0.lowercased() == "100-continue" }) {
                let answer = HTTPResponseHead(version: head.version, status: .continue)
                context.writeAndFlush(wrapOutboundOut(.head(answer)), promise: nil)
            }
        }
        context.fireChannelRead(data)
    }

    func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
        guard closes || stop.isRequested else { return context.write(data, promise: promise) }
        switch unwrapOutboundIn(data) {
        case .head(var head) where head.status != .continue:
            closes = true
            head.headers.replaceOrAdd(name: "Connection", value: "close")
            context.write(wrapOutboundOut(.head(head)), promise: promise)
        case .head, .body: context.write(data, promise: promise)
        case .end where !closes: context.write(data, promise: promise)
        case .end:
            context.write(data, promise: promise)
            context.flush()
            context.close(mode: .output, promise: nil)
        }
    }
}

/// Records that a port is stopping and answers only the requests in flight. Any thread can record it, even after the event loop has ended.
final class PortStop: Sendable {
    private let flag = Atomic(false)

    var isRequested: Bool { flag.load(ordering: .relaxed) }

    func request() { flag.store(true, ordering: .relaxed) }
}
