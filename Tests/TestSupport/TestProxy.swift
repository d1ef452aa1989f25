import NIOConcurrencyHelpers
import NIOCore
import NIOPosix
import Sockets

/// A proxy for CONNECT. It reads the head of a request, and opens the tunnel or sends an answer that the test chooses.
package final class TestProxy: LoopBound {
    package enum Behaviour: Sendable {
        /// Opens the tunnel.
        case connects
        /// Opens the tunnel, and sends its answer byte by byte.
        case connectsSlowly
        /// Sends this text, and then may close the connection.
        case answers(String, closes: Bool)
        /// Accepts the connection and sends nothing.
        case staysSilent
    }

    package let port: Int
    /// The heads of all requests.
    package let requests: NIOLockedValueBox<[String]>
    private let channel: any Channel

    private init(channel: any Channel, requests: NIOLockedValueBox<[String]>) {
        self.channel = channel
        self.requests = requests
        port = channel.port
    }

    /// - Parameter authorization: if set, requests without this authorization are answered with 407.
    package static func start(_ behaviour: Behaviour, authorization: String? = nil) async throws -> TestProxy {
        let requests = NIOLockedValueBox<[String]>([])
        let channel = try await listen { channel in
            try channel.pipeline.syncOperations.addHandler(
                Side(behaviour, authorization: authorization, requests: requests))
        }
        return TestProxy(channel: channel, requests: requests)
    }

    package func stop() async throws { try await channel.close() }

    private final class Side: ChannelInboundHandler {
        typealias InboundIn = ByteBuffer
        typealias OutboundOut = ByteBuffer

        private let behaviour: Behaviour
        private let authorization: String?
        private let requests: NIOLockedValueBox<[String]>
        private var head = ""
        private var hasHead = false
        private var early = ByteBuffer()
        private var other: (any Channel)?

        init(_ behaviour: Behaviour, authorization: String?, requests: NIOLockedValueBox<[String]>) {
            self.behaviour = behaviour
            self.authorization = authorization
            self.requests = requests
        }

        func channelRead(context: ChannelHandlerContext, data: NIOAny) {
            var bytes = unwrapInboundIn(data)
            if let other { return other.writeAndFlush(bytes, promise: nil) }
            guard !hasHead else {
                early.writeBuffer(&bytes)
                return
            }
            head += bytes.readString(length: bytes.readableBytes) ?? ""
            guard head.hasSuffix("\r\n\r\n") else { return }
            hasHead = true
            requests.withLockedValue { $0.append(head) }
            answer(context)
        }

        private func answer(_ context: ChannelHandlerContext) {
            if let authorization, !head.contains("\r\nProxy-Authorization: \(authorization)\r\n") {
                return send("HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n", context)
            }
            switch behaviour {
            case .connects, .connectsSlowly: connect(context)
            case .answers(let text, let closes):
                send(text, context)
                if closes { context.close(promise: nil) }
            case .staysSilent: break
            }
        }

        private func connect(_ context: ChannelHandlerContext) {
            let target = head.split(separator: " ")[1]
            guard let colon = target.lastIndex(of: ":"), let port = Int(target[target.index(after: colon)...]) else {
                return send("HTTP/1.1 400 Bad Request\r\n\r\n", context)
            }
            let bound = NIOLoopBound((self, context), eventLoop: context.eventLoop)
            ClientBootstrap(group: context.eventLoop)
                .channelInitializer { channel in
                    channel.pipeline.addHandler(Forwarding(to: bound.value.1.channel))
                }
                .connect(host: String(target[..<colon]), port: port)
                .assumeIsolated()
                .whenComplete { result in
                    let (side, context) = bound.value
                    switch result {
                    case .success(let channel): side.connected(context, channel)
                    case .failure: side.send("HTTP/1.1 502 Bad Gateway\r\n\r\n", context)
                    }
                }
        }

        private func connected(_ context: ChannelHandlerContext, _ channel: any Channel) {
            other = channel
            let answer = "HTTP/1.1 200 Connection established\r\nProxy-Agent: test\r\n\r\n"
            if case .connectsSlowly = behaviour {
                for character in answer.unicodeScalars { send(String(character), context) }
            } else {
                send(answer, context)
            }
            if early.readableBytes > 0 { channel.writeAndFlush(early, promise: nil) }
        }

        private func send(_ text: String, _ context: ChannelHandlerContext) {
            context.writeAndFlush(wrapOutboundOut(ByteBuffer(string: text)), promise: nil)
        }

        func channelInactive(context: ChannelHandlerContext) { other?.close(promise: nil) }

        func errorCaught(context: ChannelHandlerContext, error: any Error) { context.close(promise: nil) }
    }

    private final class Forwarding: ChannelInboundHandler, LoopBound {
        typealias InboundIn = ByteBuffer
        private let channel: any Channel

        init(to channel: any Channel) { self.channel = channel }

        func channelRead(context: ChannelHandlerContext, data: NIOAny) {
            channel.writeAndFlush(unwrapInboundIn(data), promise: nil)
        }

        func channelInactive(context: ChannelHandlerContext) { channel.close(promise: nil) }

        func errorCaught(context: ChannelHandlerContext, error: any Error) { context.close(promise: nil) }
    }
}

package func withProxy(
    _ behaviour: TestProxy.Behaviour, authorization: String? = nil, _ body: (TestProxy) async throws -> Void
) async throws {
    let proxy = try await TestProxy.start(behaviour, authorization: authorization)
    try await running({ try await body(proxy) }, thenAlways: proxy.stop)
}
