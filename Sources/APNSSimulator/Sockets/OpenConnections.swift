import NIOCore
import Synchronization

final class OpenConnections: Sendable {
    private let channels = Mutex<[ObjectIdentifier: any Channel]>([:])

    var count: Int { channels.withLock { $0.count } }

    func add(_ channel: any Channel) {
        let key = ObjectIdentifier(channel)
        channels.withLock { $0[key] = channel }
        channel.closeFuture.whenComplete { _ in
            _ = self.channels.withLock { $0.removeValue(forKey: key) }
        }
    }

    /// Sends an event to every connection.
    /// - Returns: the number of connections.
    @discardableResult
    func fire(_ event: ConnectionEvent) -> Int {
        let open = channels.withLock { Array($0.values) }
        for channel in open { channel.pipeline.fireUserInboundEventTriggered(event) }
        return open.count
    }

    func shutDown(grace: TimeAmount) async {
        let open = channels.withLock { Array($0.values) }
        for channel in open {
            channel.pipeline.fireUserInboundEventTriggered(ConnectionEvent.shutDown(reason: "Shutdown"))
            channel.eventLoop.scheduleTask(in: grace) { channel.close(promise: nil) }
        }
        for channel in open {
            // The connection is closed even if closing it reported an error.
            try? await channel.closeFuture.get()
        }
    }
}

/// An event from outside that ends or changes a connection.
enum ConnectionEvent: Sendable {
    /// End after a GOAWAY with this reason, or a packet with status 10.
    case shutDown(reason: String)
    /// End without close_notify, GOAWAY or a packet.
    case drop
    /// Stop answering requests over HTTP/2.
    case wedge
}
