import NIOCore
import Synchronization

/// The open connections of a server, for ending them.
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

    /// Fires an event in every connection's pipeline.
    /// - Returns: the number of connections.
    @discardableResult
    func fire(_ event: any Sendable) -> Int {
        let open = channels.withLock { Array($0.values) }
        for channel in open { channel.pipeline.fireUserInboundEventTriggered(event) }
        return open.count
    }

    func shutDown(grace: TimeAmount) async {
        let open = channels.withLock { Array($0.values) }
        for channel in open {
            channel.pipeline.fireUserInboundEventTriggered(SimulatorShutdown())
            channel.eventLoop.scheduleTask(in: grace) { channel.close(promise: nil) }
        }
        for channel in open {
            // The connection is closed even if closing reported an error.
            try? await channel.closeFuture.get()
        }
    }
}

/// Makes a connection send GOAWAY and end.
struct SimulatorShutdown: Sendable {
    var reason = "Shutdown"
}

/// Makes a connection end without close_notify or GOAWAY.
struct SimulatorDrop: Sendable {}

/// Makes a connection stop answering requests.
struct SimulatorWedge: Sendable {}
