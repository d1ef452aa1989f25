import Glibc
import NIOCore
import NIOPosix
import TLS

/// The ways in which the gateway and the feedback service end a connection.
enum SocketEnding {
    /// How long a client may take to close after this side has. Closing with unread bytes of the client's in the socket
    /// would make the kernel throw away what was sent last.
    private static let patience = TimeAmount.seconds(1)

    /// Closes this side once all is sent, and the connection when the client has closed too, or takes too long.
    static func close(_ context: ChannelHandlerContext, _ tls: TLSHandler) {
        let closed = context.eventLoop.makePromise(of: Void.self)
        closed.futureResult.assumeIsolated().whenComplete { result in
            guard case .success = result else { return drop(context, tls) }
            context.eventLoop.assumeIsolated().scheduleTask(in: patience) { drop(context, tls) }
        }
        context.close(mode: .output, promise: closed)
    }

    /// Ends the connection with a TCP reset, without a word in TLS.
    static func reset(_ context: ChannelHandlerContext, _ tls: TLSHandler) {
        guard let socket = context.channel as? any SocketOptionProvider else { return drop(context, tls) }
        // Without time to linger, the kernel resets instead of closing. A socket that refuses the option is gone already.
        socket.setSoLinger(linger(l_onoff: 1, l_linger: 0)).assumeIsolated().whenComplete { _ in drop(context, tls) }
    }

    /// Closes the connection, without a word in TLS.
    static func drop(_ context: ChannelHandlerContext, _ tls: TLSHandler) {
        guard context.channel.isActive else { return }
        // Through the TLS handler it would say close_notify first; from its place in the pipeline it says nothing.
        do {
            try context.pipeline.syncOperations.context(handler: tls).close(promise: nil)
        } catch {
            context.close(promise: nil)
        }
    }
}

extension TLSError {
    /// True if the handshake failed because of the client's certificate, or for want of one.
    var isAboutClientCertificate: Bool {
        switch kind {
        case .certificateExpired, .certificateNotYetValid, .untrustedCertificate, .certificateRejected,
            .peerCertificateMissing:
            true
        default: false
        }
    }
}
