import NIOCore
import Synchronization

/// The connections of a server, so that it can end them.
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

    /// Hands every connection's handlers an event.
    /// - Returns: how many connections there were.
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
            // A close that failed has closed all the same.
            try? await channel.closeFuture.get()
        }
    }
}

/// Asks a connection to say GOAWAY and end.
struct SimulatorShutdown: Sendable {
    var reason = "Shutdown"
}

/// Asks a connection to end without a word.
struct SimulatorDrop: Sendable {}

/// Asks a connection to answer no request any more.
struct SimulatorWedge: Sendable {}
