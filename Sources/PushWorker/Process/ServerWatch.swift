import Logging
import NIOConcurrencyHelpers
import NIOCore
import PushQueue
import Redis

/// Reads the state of a process's Redis servers every 30 s, once for all lanes, and logs conditions that endanger jobs.
///
/// It uses the connections of the first lane.
final class ServerWatch: Sendable {
    /// The pause between two rounds. It varies by a fifth in both directions, so that the workers of a fleet do not ask at the same time.
    private static let interval = Duration.seconds(30)
    /// A state older than this is not shown.
    private static let lifetime = Duration.seconds(90)
    /// The pause after a round without any answer.
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

    /// - Returns: `nil` if the server is already known or does not answer. The lanes log a missing answer.
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

/// Decides which findings about a queue's Redis are logged: each once when it begins and once when it ends. No I/O.
struct FindingLog {
    enum Line: Equatable {
        case found(QueueServer.Finding)
        case ended(QueueServer.Finding.Kind)
    }

    private var logged: Set<QueueServer.Finding.Kind> = []

    /// - Parameter findings: all current findings.
    mutating func update(_ findings: [QueueServer.Finding]) -> [Line] {
        // Lanes log refused writes and replicas themselves, at once.
        let findings = findings.filter { $0.kind != .refusesWrites && $0.kind != .replica }
        var kinds = Set(findings.map(\.kind))
        // Memory oscillates at its limit. A full server counts as full until it is no longer nearly full.
        if logged.contains(.full), kinds.remove(.nearlyFull) != nil { kinds.insert(.full) }
        // A condition that could not be checked may still exist.
        if kinds.contains(.notReported) { kinds.formUnion(logged) }
        if kinds.contains(.noReplica), logged.contains(.noMinimumOfReplicas) { kinds.insert(.noMinimumOfReplicas) }
        let found = findings.filter { kinds.contains($0.kind) && !logged.contains($0.kind) }
        let ended = QueueServer.Finding.Kind.allCases.filter { kind in
            let isWorse = kind == .nearlyFull && kinds.contains(.full)
            return logged.contains(kind) && !kinds.contains(kind) && !isWorse
        }
        logged = kinds
        return found.map { .found($0) } + ended.map { .ended($0) }
    }
}

extension QueueServer.Finding.Kind {
    /// The log line for the end of a finding.
    var endingSentence: String {
        switch self {
        case .tooOld: "Redis is no longer too old"
        case .full, .nearlyFull: "Redis has free memory again"
        case .replica, .refusesWrites: "Redis accepts writes again"
        case .evicts: "Redis no longer evicts keys"
        case .notPersistent: "Redis keeps an append-only file now"
        case .noReplica: "Redis has a replica again"
        case .noMinimumOfReplicas: "Redis no longer accepts jobs without a replica"
        case .notReported: "Redis answers INFO now"
        case .clusterNode: "Redis is no longer one of several nodes of a Cluster"
        }
    }
}
