import NIOCore

/// Decodes the bytes of a channel into replies for a connection.
final class RedisChannelHandler: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    /// Set to `nil` when the channel ends, to break a reference cycle: the connection keeps the channel, and the
    /// channel this handler.
    private(set) var connection: RedisConnection?
    private let decoder = RESPDecoder()

    init(connection: RedisConnection) {
        self.connection = connection
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        guard let connection else { return }
        unwrapInboundIn(data).withUnsafeReadableBytes { bytes in
            do throws(RESPDecoder.Violation) {
                var rest = bytes[...]
                while !rest.isEmpty && connection.isOpen {
                    try decoder.feed(UnsafeRawBufferPointer(rebasing: rest.prefix(RESPDecoder.portion)))
                    rest = rest.dropFirst(RESPDecoder.portion)
                    // A completion may close the connection; the remaining replies then have no receiver.
                    while connection.isOpen, let reply = try decoder.next() {
                        connection.receive(reply)
                    }
                }
            } catch {
                connection.violated(error.reason)
            }
        }
    }

    func channelInactive(context: ChannelHandlerContext) {
        connection?.lost("the server closed the connection")
        context.fireChannelInactive()
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        connection?.lost(RedisError.reason(of: error))
    }

    func handlerRemoved(context: ChannelHandlerContext) {
        connection = nil
    }
}
