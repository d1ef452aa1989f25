import Glibc
import NIOCore
import NIOPosix
import TLS

/// An action of a connection's state machine on its socket.
enum SocketStep: Equatable {
    /// Send these bytes in a separate write.
    case send([UInt8])
    /// Close this side, and read on until the client has closed too.
    case close
    /// End the connection with a TCP reset.
    case reset
    /// Keep the connection open, and stop reading.
    case stopReading
}

/// The ways to end a connection.
enum SocketEnding {
    /// The time that a client has to close after this side has. Closing with unread bytes in the socket would make the
    /// kernel discard the last bytes sent.
    private static let patience = TimeAmount.seconds(1)

    /// Closes this side once everything is sent, and the connection when the client has closed too or its time is over.
    static func close(_ context: ChannelHandlerContext, _ tls: TLSHandler) {
        let closed = context.eventLoop.makePromise(of: Void.self)
        closed.futureResult.assumeIsolated().whenComplete { result in
            guard case .success = result else { return drop(context, tls) }
            context.eventLoop.assumeIsolated().scheduleTask(in: patience) { drop(context, tls) }
        }
        context.close(mode: .output, promise: closed)
    }

    /// Ends the connection with a TCP reset, without close_notify.
    static func reset(_ context: ChannelHandlerContext, _ tls: TLSHandler) {
        guard let socket = context.channel as? any SocketOptionProvider else { return drop(context, tls) }
        // With a linger time of 0, closing makes the kernel send a reset. If the option cannot be set, the socket is
        // closed already.
        socket.setSoLinger(linger(l_onoff: 1, l_linger: 0)).assumeIsolated().whenComplete { _ in drop(context, tls) }
    }

    /// Closes the connection without close_notify.
    static func drop(_ context: ChannelHandlerContext, _ tls: TLSHandler) {
        guard context.channel.isActive else { return }
        // Closing through the TLS handler would send close_notify; closing from its place in the pipeline bypasses it.
        do {
            try context.pipeline.syncOperations.context(handler: tls).close(promise: nil)
        } catch {
            context.close(promise: nil)
        }
    }
}

extension TLSError {
    /// True if the handshake failed because of the client's certificate, or the lack of one.
    var isAboutClientCertificate: Bool {
        switch kind {
        case .certificateExpired, .certificateNotYetValid, .untrustedCertificate, .certificateRejected,
            .peerCertificateMissing:
            true
        default: false
        }
    }
}
