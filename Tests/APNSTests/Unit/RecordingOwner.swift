import NIOCore
import NIOEmbedded

@testable import APNS
@testable import TLS

extension HTTP2Connection {
    /// Returns a connection to a server that allows 1,000 streams, on a channel without a socket.
    /// - Parameter handlers: handlers between the connection and the network.
    static func embedded(
        _ owner: RecordingOwner, below handlers: [any ChannelHandler] = []
    ) throws -> (connection: HTTP2Connection, channel: EmbeddedChannel) {
        let connection = HTTP2Connection(id: 0, endpoint: .sandbox, limits: .init(), owner: owner)
        let channel = EmbeddedChannel()
        try channel.pipeline.syncOperations.addHandlers(handlers + [connection])
        channel.pipeline.fireUserInboundEventTriggered(
            TLSHandshakeCompleted(applicationProtocol: "h2", version: "", serverName: nil, peerCertificate: nil))
        try channel.writeInbound(ByteBuffer(bytes: HTTP2Frame.settings(maximumStreams: 1000).bytes))
        return (connection, channel)
    }
}

/// Records completed requests, and does nothing else.
final class RecordingOwner: HTTP2ConnectionOwner {
    private(set) var completed: [UInt64] = []
    private(set) var results: [UInt64: RequestResult] = [:]
    private(set) var closed = 0
    private(set) var error: (any Error)?
    let newestConnection = 0

    func connectionChanged(_ connection: HTTP2Connection) {}
    func connectionWearsOut(_ connection: HTTP2Connection) {}
    func connectionIsStale(_ connection: HTTP2Connection) {}
    func connectionIsRefused(_ connection: HTTP2Connection, reason: String) {}
    func connection(
        _ connection: HTTP2Connection, didNotAnswer apnsID: APNSID?, deadline: NIODeadline, isRefusal: Bool
    ) {}
    func connection(_ connection: HTTP2Connection, completed tag: UInt64, with result: RequestResult) {
        completed.append(tag)
        results[tag] = result
    }
    func connectionClosed(_ connection: HTTP2Connection, error: any Error) {
        closed += 1
        self.error = error
    }
}
