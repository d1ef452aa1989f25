import NIOCore

/// Listens to a Sentinel for the news that a master has changed.
///
/// After a failover of a healthy master the old one goes on taking writes for about ten seconds, which are lost when a
/// Sentinel makes it a replica; so the news matter, and to ask now and then is not enough.
/// (Source: Redis Sentinel documentation, "Pub/Sub messages" and `+convert-to-slave`.)
///
/// `@unchecked Sendable`: everything happens on `eventLoop`, that of the client it belongs to.
final class SentinelWatch: @unchecked Sendable {
    private static let channel = "+switch-master"
    private static let pause: TimeAmount = .seconds(1)

    private let master: String
    private let finder: ServerFinder
    private let eventLoop: any EventLoop
    /// Told when the master may be another one: at such news, and when the listening begins, for what came before.
    private let onDoubt: () -> Void
    private var isRunning = false
    private var connection: RedisConnection?
    private var retry: Scheduled<Void>?

    init(master: String, finder: ServerFinder, eventLoop: any EventLoop, onDoubt: @escaping () -> Void) {
        self.master = master
        self.finder = finder
        self.eventLoop = eventLoop
        self.onDoubt = onDoubt
    }

    func start() {
        guard !isRunning else { return }
        isRunning = true
        connect()
    }

    func stop() {
        isRunning = false
        retry?.cancel()
        connection?.close()
        connection = nil
    }

    private func connect() {
        retry = nil
        finder.connectToAdviser { [self] result, adviser in
            switch result {
            case .success(let connection) where isRunning: listen(to: adviser, over: connection)
            case .success(let connection): connection.close()
            case .failure: lost(adviser)
            }
        }
    }

    private func listen(to adviser: ServerFinder.Location, over connection: RedisConnection) {
        self.connection = connection
        connection.onClose = { [self] _ in lost(adviser) }
        connection.onMessage = { [self] message in
            guard message.root.count == 3, message.root[2].string?.hasPrefix(master + " ") == true else { return }
            // It knows, and others perhaps not yet.
            finder.prefer(adviser)
            onDoubt()
        }
        connection.send(RedisCommand("SUBSCRIBE", Self.channel), timeout: finder.askTimeout) { [self] result in
            switch result {
            case .success: onDoubt()
            case .failure: connection.close()
            }
        }
    }

    private func lost(_ adviser: ServerFinder.Location) {
        connection = nil
        guard isRunning, retry == nil else { return }
        finder.mistrust(adviser)
        retry = eventLoop.scheduleTask(in: Self.pause) { self.connect() }
    }
}
