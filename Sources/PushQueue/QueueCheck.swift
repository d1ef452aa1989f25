import NIOCore
import Redis

/// Looks at what a worker needs of Redis, and changes nothing.
public struct QueueCheck {
    /// What was found.
    public struct Report: Sendable, Equatable {
        /// The server's version, such as `7.0.15`.
        public var version = ""
        /// How many seconds the server's clock is ahead of this machine's.
        public var clockLead: Int64 = 0
        /// What holds, a sentence each.
        public var facts: [String] = []
        /// What may lead to harm, with what to do.
        public var warnings: [String] = []
        /// What keeps a worker from working, with what to do.
        public var failures: [String] = []
    }

    /// The oldest Redis with all the commands that are used.
    private static let oldestVersion = (6, 2)

    private let client: RedisClient
    private let keys: QueueKeys

    /// - Parameter client: of the server that has the queue, and ready.
    public init(_ client: RedisClient, _ keys: QueueKeys) {
        self.client = client
        self.keys = keys
    }

    /// Looks at everything.
    /// - Parameter now: this machine's time, in seconds since 1970.
    /// - Throws: `RedisError` when the connection breaks; what the server refuses is in the report.
    public func run(now: Int64) async throws -> Report {
        var report = Report()
        try await attempt("INFO", &report) { report in
            let info = try await text(RedisCommand("INFO"))
            Self.judge(Self.fields(info), &report)
        }
        try await attempt("TIME", &report) { report in
            let time = try await client.call(RedisCommand("TIME")).root.children.compactMap(\.string)
            let seconds = time.first.flatMap { Int64($0) }
            report.clockLead = (seconds ?? now) - now
            if abs(report.clockLead) > 60 {
                report.warnings.append(
                    """
                    Redis' clock is \(abs(report.clockLead)) s \(report.clockLead > 0 ? "ahead of" : "behind") this \
                    machine's; APNs refuses provider tokens of a machine whose clock is wrong: set it
                    """)
            }
        }
        for (key, kind) in [
            (keys.jobs, "list"), (keys.retry, "zset"), (keys.workers, "zset"), (keys.dead, "zset"),
            (keys.paused, "string"),
        ] {
            try await attempt("TYPE", &report) { report in
                let found = try await text(RedisCommand("TYPE", key))
                guard found != kind, found != "none" else { return }
                report.failures.append(
                    "\(key) holds a \(found) where the queue has a \(kind): rename or delete that key")
            }
        }
        try await attempt("EVAL", &report) { report in
            let depth = try await QueueDepth.read(client, keys)
            report.facts.append(
                "queue \(keys.queue): \(depth.jobs) jobs wait, \(depth.retries) are to be sent later, "
                    + "\(depth.claims) are claimed")
        }
        try await attempt("GET", &report) { report in
            guard let reason = try await QueuePause.reason(client, keys) else { return }
            report.warnings.append("the queue \(keys.queue) is paused: \(reason)")
        }
        return report
    }

    /// What the server refuses is found, not thrown.
    private func attempt(
        _ command: String, _ report: inout Report, _ body: (inout Report) async throws -> Void
    ) async throws {
        do {
            try await body(&report)
        } catch let error as RedisError where error.isRefusal {
            // A worker does without INFO, and its user need not be allowed it.
            if command == "INFO" {
                report.warnings.append("Redis does not tell its version and settings, which are not checked: \(error)")
            } else {
                report.failures.append("Redis refuses \(command): \(error)")
            }
        }
    }

    private func text(_ command: RedisCommand) async throws -> String {
        try await client.call(command).root.string ?? ""
    }

    private static func fields(_ info: String) -> [Substring: Substring] {
        var fields: [Substring: Substring] = [:]
        for line in info.split(whereSeparator: \.isNewline) {
            guard let colon = line.firstIndex(of: ":") else { continue }
            fields[line[..<colon]] = line[line.index(after: colon)...]
        }
        return fields
    }

    private static func judge(_ info: [Substring: Substring], _ report: inout Report) {
        report.version = info["valkey_version"].map { "Valkey \($0)" } ?? String(info["redis_version"] ?? "unknown")
        let parts = (info["redis_version"] ?? "").split(separator: ".").compactMap { Int($0) }
        if parts.count >= 2, (parts[0], parts[1]) < oldestVersion {
            report.failures.append(
                "Redis \(report.version) is too old: 6.2 or later is needed, for BLMOVE, LPOP with a count and others")
        }
        if let policy = info["maxmemory_policy"], info["maxmemory"] != "0", policy != "noeviction" {
            report.failures.append(
                "Redis throws keys away when its memory is full (maxmemory-policy \(policy)), and jobs with them: "
                    + "set maxmemory-policy to noeviction")
        }
        if info["aof_enabled"] == "0" {
            report.warnings.append(
                """
                Redis keeps no append-only file: what it took since its last snapshot is lost when it dies. Set \
                appendonly to yes where that matters
                """)
        }
        if info["role"] == "slave" { report.failures.append("this Redis is a replica, and takes no writes") }
    }
}

extension RedisError {
    fileprivate var isRefusal: Bool {
        if case .server = self { true } else { false }
    }
}
