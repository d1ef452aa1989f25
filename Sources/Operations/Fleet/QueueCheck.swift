import NIOCore
import PushQueue
import Redis

/// Checks that a worker can work with Redis. Changes nothing.
package struct QueueCheck {
    package struct Report: Sendable, Equatable {
        /// The server's version, such as `7.0.15`.
        package var version = ""
        /// The lead of the server's clock over this machine's, in seconds.
        package var clockLead: Int64 = 0
        /// The facts, as sentences.
        package var facts: [String] = []
        /// Risks, each with advice.
        package var warnings: [String] = []
        /// Problems that keep a worker from working, each with advice.
        package var failures: [String] = []
    }

    private let client: RedisClient
    private let keys: QueueKeys

    /// - Parameter client: a ready client of the server that has the queue.
    package init(_ client: RedisClient, _ keys: QueueKeys) {
        self.client = client
        self.keys = keys
    }

    /// - Parameter now: this machine's time, in seconds since 1970.
    /// - Throws: `RedisError` if the connection breaks; commands that the server refuses are in the report.
    package func run(now: Int64) async throws -> Report {
        var report = Report()
        Self.judge(try await QueueServer.read(client, keys), &report)
        // If the server answered like a replica, the client has left the server and looks for the master again.
        try await client.waitUntilReady(timeout: .seconds(10))
        try await attempt("TIME", &report) { report in
            report.clockLead = try await client.time() / 1000 - now
            if abs(report.clockLead) > 60 {
                report.warnings.append(
                    """
                    the Redis server's clock is \(abs(report.clockLead)) s \
                    \(report.clockLead > 0 ? "ahead of" : "behind") this machine's; APNs refuses provider tokens of a \
                    machine whose clock is wrong: correct it
                    """)
            }
        }
        for (key, kind) in keys.schema(lanes: []) {
            try await attempt("TYPE", &report) { report in
                let found = try await text(RedisCommand("TYPE", key))
                guard found != kind, found != "none" else { return }
                report.failures.append(
                    "\(key) holds a \(found) where the queue has a \(kind): rename or delete that key")
            }
        }
        try await attempt("scripts", &report) { report in
            let gauges = try await QueueGauges.read(client, keys)
            report.facts.append(
                "queue \(keys.queue): \(gauges.jobs) jobs wait, \(gauges.later) are scheduled or deferred, "
                    + "\(gauges.failed) are tried again after a failure, \(gauges.claims) are claimed")
        }
        try await attempt("GET", &report) { report in
            guard let pause = try await QueuePause.read(client, keys) else { return }
            report.warnings.append("the queue \(keys.queue) is paused: \(pause.reason)")
        }
        return report
    }

    /// Runs a check, and reports a refusal by the server as a failure.
    /// - Parameter command: the command that may be refused, or `scripts`.
    private func attempt(
        _ command: String, _ report: inout Report, _ body: (inout Report) async throws -> Void
    ) async throws {
        do {
            try await body(&report)
        } catch let error as RedisError where error.isRefusal {
            report.failures.append("Redis refuses \(command): \(error)")
        }
    }

    private func text(_ command: RedisCommand) async throws -> String {
        try await client.call(command).root.string ?? ""
    }

    private static func judge(_ server: QueueServer, _ report: inout Report) {
        if case .success(let info) = server.info {
            report.version = info.version ?? "unknown"
            if let facts = facts(info, isFailedOver: server.isFailedOver) {
                report.facts.append(server.isFailedOver ? "\(server.address): \(facts)" : facts)
            }
        }
        for finding in server.findings {
            let sentence = "\(finding.message): \(finding.advice)"
            if finding.kind.isFailure { report.failures.append(sentence) } else { report.warnings.append(sentence) }
        }
    }

    /// Returns facts such as `memory 1.1 of 20.0 MiB (noeviction), append-only file on, 2 replicas`.
    private static func facts(_ info: ServerInfo, isFailedOver: Bool) -> String? {
        var facts: [String] = []
        if let memory = info.memoryInWords {
            let isLimited = info.memoryLimit ?? 0 > 0
            facts.append("memory \(memory) (\(isLimited ? info.evictionPolicy ?? "policy unknown" : "no limit"))")
        }
        if let keeps = info.keepsAppendOnlyFile { facts.append("append-only file \(keeps ? "on" : "off")") }
        if isFailedOver, let replicas = info.replicas {
            facts.append(replicas == 1 ? "1 replica" : "\(replicas) replicas")
        }
        return facts.isEmpty ? nil : facts.joined(separator: ", ")
    }
}

extension RedisError {
    fileprivate var isRefusal: Bool {
        if case .server = self { true } else { false }
    }
}
