import Logging
import NIOConcurrencyHelpers
import NIOCore
import PushQueue
import Redis

/// Reads the state of a process's Redis servers every 30 s, once for all lanes, and logs conditions that endanger jobs.
///
/// It uses the connections of the first lane.
final class ServerWatch: Sendable {
    /// The pause between two rounds, varied by a fifth in both directions so that a fleet does not ask in step.
    private static let interval = Duration.seconds(30)
    /// The age after which a state is no longer shown.
    private static let lifetime = Duration.seconds(90)
    /// The pause after a round in which no server answered.
    private static let retryPause = Duration.seconds(2)

    private let logger: Logger
    private let read = NIOLockedValueBox<(servers: [QueueServer], at: ContinuousClock.Instant)?>(nil)

    init(_ logger: Logger) { self.logger = logger }

    /// The last states; empty if they are too old.
    var latest: [QueueServer] {
        guard let (servers, at) = read.withLockedValue({ $0 }) else { return [] }
        return ContinuousClock.now - at < Self.lifetime ? servers : []
    }

    /// Reads the states until the task is cancelled.
    /// - Parameter queues: started clients, and the keys of their queues.
    func run(_ queues: [(client: RedisClient, keys: QueueKeys)]) async {
        var logs: [String: FindingLog] = [:]
        while !Task.isCancelled {
            var servers: [QueueServer] = []
            for (client, keys) in queues where !Task.isCancelled {
                guard let server = await ask(client, keys, besides: servers) else { continue }
                servers.append(server)
                for line in logs[keys.queue, default: FindingLog()].update(server.findings) { log(line, server) }
            }
            if !servers.isEmpty { read.withLockedValue { $0 = (servers, .now) } }
            // A cancelled sleep ends the loop.
            let pause = servers.isEmpty ? Self.retryPause : Self.interval
            try? await Task.sleep(for: pause * Double.random(in: 0.8...1.2))
        }
    }

    /// - Returns: `nil` if the server is already known or does not answer; the lanes log the latter.
    private func ask(
        _ client: RedisClient, _ keys: QueueKeys, besides known: [QueueServer]
    ) async -> QueueServer? {
        do {
            try await client.waitUntilReady(timeout: .seconds(5))
            let address = try await client.eventLoop.submit { client.server?.address }.get()
            guard !known.contains(where: { $0.address == address }) else { return nil }
            return try await QueueServer.read(client, keys)
        } catch {
            return nil
        }
    }

    private func log(_ line: FindingLog.Line, _ server: QueueServer) {
        switch line {
        case .found(let finding):
            logger.log(
                level: finding.kind.isFailure ? .error : .warning, "\(finding.message): \(finding.advice)",
                metadata: ["event": "\(finding.kind.rawValue)"])
        case .ended(let kind):
            logger.notice(
                "\(kind.endingSentence)", metadata: ["event": "\(kind.rawValue)_ended", "server": "\(server.address)"])
        }
    }
}
