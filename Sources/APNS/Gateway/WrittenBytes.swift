import Glibc
import NIOCore

/// Counts what is written to the socket, below TLS, and knows how much of that the other side's kernel has got.
///
/// A dead connection takes whatever fits into the kernel's buffers. Without this, all that would be confirmed for its age.
final class WrittenBytes: ChannelOutboundHandler {
    typealias OutboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    /// Bytes that were written, in all.
    private(set) var position = 0

    func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
        position += unwrapOutboundIn(data).readableBytes
        context.write(data, promise: promise)
    }

    /// Bytes that the other side's kernel has acknowledged; `nil` where it cannot be told.
    func acknowledged(on channel: any Channel) -> Int? {
        guard let options = channel.syncOptions, let waiting = try? options.getOption(.bufferedWritableBytes),
            let queued = Self.queued(channel)
        else { return nil }
        return position - waiting - queued
    }

    /// Bytes in the kernel's send queue, unacknowledged ones included (`tcp(7)`, SIOCOUTQ).
    private static func queued(_ channel: any Channel) -> Int? {
        let count: CInt?? = try? channel.pipeline.syncOperations.withUnsafeTransportIfAvailable(
            of: NIOBSDSocket.Handle.self
        ) { socket in
            var count: CInt = 0
            return ioctl(socket, UInt(TIOCOUTQ), &count) == 0 ? count : nil
        }
        return count.flatMap { $0 }.map(Int.init)
    }
}
