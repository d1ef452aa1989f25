import NIOCore
import PrintableText
import Redis

/// The Redis server that holds a queue: its report about itself, and its refusal of writes, if any.
public struct QueueServer: Sendable, Equatable {
    /// `host:port`, or the path of a socket.
    public var address: String
    /// True if a failover can put another server in its place: with Sentinels and in a Cluster.
    public var isFailedOver: Bool
    /// The server's report on itself, or its refusal.
    public var info: Result<ServerInfo, RedisServerError>
    /// The server's refusal of a producer's write; `nil` if it accepts writes, or if the user has no permission to write.
    public var writeRefusal: RedisServerError?
    /// The number of masters of the server's Cluster, if the URL names a single server; `nil` if the server is in no Cluster.
    public var clusterSize: Int?

    public init(
        address: String, isFailedOver: Bool = false, info: Result<ServerInfo, RedisServerError>,
        writeRefusal: RedisServerError? = nil
    ) {
        self.address = address
        self.isFailedOver = isFailedOver
        self.info = info
        self.writeRefusal = writeRefusal
    }

    /// Reads the state of the server. Changes nothing.
    ///
    /// It attempts a write: Redis refuses `RPUSHX` for the same reasons as a producer's `RPUSH` (`OOM`, `READONLY`,
    /// `MISCONF`, `NOREPLICAS`). `RPUSHX` pushes only onto a list that exists, and this one never does.
    /// - Parameter client: a ready client of the server that has the queue.
    /// - Throws: `RedisError` if there is no answer; refusals of the server are in the result.
    public static func read(_ client: RedisClient, _ keys: QueueKeys) async throws -> QueueServer {
        let address = try await client.eventLoop.submit { client.server?.address }.get()
        let report = try await answer(client, RedisCommand("INFO"))
        // The client leaves a server that answers like a replica, so this comes last.
        let attempt = try await answer(client, RedisCommand("RPUSHX", keys.stats("write-attempt"), ""))
        var server = QueueServer(
            address: (address ?? client.topology.address).printable, isFailedOver: client.topology.isFailedOver,
            info: report.map { ServerInfo($0.root.string ?? "") })
        if case .success(let info) = server.info, info.isClusterNode, case .single = client.topology,
            case .success(let state) = try await answer(client, RedisCommand("CLUSTER", "INFO"))
        {
            server.clusterSize = ServerInfo.number("cluster_size", in: state.root.string ?? "")
        }
        if case .failure(let error) = attempt, error.prefix != "NOPERM" { server.writeRefusal = error }
        return server
    }

    private static func answer(
        _ client: RedisClient, _ command: RedisCommand
    ) async throws -> Result<RESPReply, RedisServerError> {
        do {
            return .success(try await client.call(command))
        } catch RedisError.server(let error) {
            return .failure(error)
        }
    }

    /// True if the server refuses writes, or would refuse the next one, because its memory is full.
    public var isFull: Bool {
        if let writeRefusal { return writeRefusal.prefix == "OOM" }
        guard case .success(let info) = info, let share = info.memoryShare else { return false }
        return share >= 1 && !info.evicts
    }

    /// True if the server refuses writes, for any reason.
    public var refusesWrites: Bool { writeRefusal != nil || isFull }
}

extension RedisTopology {
    fileprivate var isFailedOver: Bool {
        switch self {
        case .single: false
        case .sentinel, .cluster: true
        }
    }
}

// The judgement, without any I/O.
extension QueueServer {
    /// A condition of the server that endangers jobs.
    public struct Finding: Sendable, Equatable {
        /// The kind of finding. The raw value is stable, for programs.
        public enum Kind: String, Sendable, CaseIterable {
            /// A command that workers need is missing.
            case tooOld = "redis_too_old"
            /// The server is one of several nodes of a Cluster, and the URL names only this one.
            case clusterNode = "redis_is_cluster"
            /// The server follows a master.
            case replica = "redis_is_replica"
            /// The memory is full, and writes are refused.
            case full = "redis_full"
            case nearlyFull = "redis_nearly_full"
            /// Writes are refused for another reason.
            case refusesWrites = "redis_refuses_writes"
            /// Keys are evicted when the memory is full.
            case evicts = "redis_evicts"
            /// There is no append-only file.
            case notPersistent = "redis_not_persistent"
            /// There is no replica for a failover.
            case noReplica = "redis_no_replica"
            /// Writes are accepted without a replica.
            case noMinimumOfReplicas = "redis_no_min_replicas"
            /// The server does not report its state.
            case notReported = "redis_info_refused"

            /// True if jobs are refused, or can be lost while the server runs. With other findings, jobs are lost only
            /// if the server dies, or the finding can become a failure later.
            public var isFailure: Bool {
                switch self {
                case .tooOld, .clusterNode, .replica, .full, .refusesWrites, .evicts: true
                case .nearlyFull, .notPersistent, .noReplica, .noMinimumOfReplicas, .notReported: false
                }
            }
        }

        public var kind: Kind
        public var message: String
        public var advice: String

        public init(_ kind: Kind, _ message: String, advice: String) {
            self.kind = kind
            self.message = message
            self.advice = advice
        }
    }

    /// The oldest version of Redis that has all commands that are used.
    private static let oldestVersion = [6, 2]

    /// All findings, failures first.
    public var findings: [Finding] {
        let report: ServerInfo?
        var findings: [Finding] = []
        switch info {
        case .success(let info):
            report = info
            findings = version(info) + mode + writes(info) + memory(info) + eviction(info) + persistence(info)
        case .failure(let error):
            report = nil
            findings = writes(nil) + [Self.notReported(error, at: address)]
        }
        if let report, isFailedOver { findings += replication(report) }
        let failures = findings.filter(\.kind.isFailure)
        return failures + findings.filter { !$0.kind.isFailure }
    }

    private func version(_ info: ServerInfo) -> [Finding] {
        guard info.compatibleVersion.count >= 2, info.compatibleVersion.lexicographicallyPrecedes(Self.oldestVersion)
        else { return [] }
        return [
            Finding(
                .tooOld, "Redis at \(address) is too old (\(info.version ?? "unknown"))",
                advice: "use Redis 6.2 or later, which has BLMOVE and the other commands that workers need")
        ]
    }

    private var mode: [Finding] {
        guard let clusterSize, clusterSize > 1 else { return [] }
        return [
            Finding(
                .clusterNode,
                "Redis at \(address) is one of \(clusterSize) masters of a Cluster, and the others are not used",
                advice: "begin the Redis URL with redis+cluster://")
        ]
    }

    private func writes(_ info: ServerInfo?) -> [Finding] {
        if isFull {
            let use = info?.memoryInWords.map { ": \($0)" } ?? ""
            return [
                Finding(
                    .full, "Redis at \(address) is full\(use); it refuses new jobs",
                    advice: "raise maxmemory or free memory; workers keep sending waiting jobs and need no restart")
            ]
        }
        if info?.role == .replica {
            return [
                Finding(
                    .replica, "Redis at \(address) is a replica; writes to it are refused or lost",
                    advice: "name the master in the Redis URL, or its Sentinels (redis+sentinel://)")
            ]
        }
        guard let writeRefusal else { return [] }
        return [
            Finding(
                .refusesWrites, "Redis at \(address) refuses writes: \(writeRefusal.message.printable)",
                advice: writeRefusal.advice ?? "see the Redis log")
        ]
    }

    private func memory(_ info: ServerInfo) -> [Finding] {
        guard !isFull, info.isNearlyFull, let use = info.memoryInWords else { return [] }
        return [
            Finding(
                .nearlyFull, "Redis at \(address) is nearly full: \(use)",
                advice: "raise maxmemory or free memory; when it is full, it refuses new jobs")
        ]
    }

    private func eviction(_ info: ServerInfo) -> [Finding] {
        guard info.evicts, let policy = info.evictionPolicy else { return [] }
        let message =
            info.evictsExpiringKeysOnly
            ? """
            Redis at \(address) evicts keys with an expiry when its memory is full (maxmemory-policy \(policy)): unique_for \
            reservations (their jobs are sent twice), app pauses and rates, commands to workers, provider tokens and \
            counters, but no jobs
            """
            : """
            Redis at \(address) evicts any key, waiting jobs included, when its memory is full (maxmemory-policy \(policy))
            """
        return [Finding(.evicts, message, advice: "set maxmemory-policy to noeviction")]
    }

    private func persistence(_ info: ServerInfo) -> [Finding] {
        guard info.keepsAppendOnlyFile == false else { return [] }
        return [
            Finding(
                .notPersistent,
                "Redis at \(address) keeps no append-only file; if it crashes, jobs since its last snapshot are lost",
                advice: "set appendonly to yes")
        ]
    }

    private func replication(_ info: ServerInfo) -> [Finding] {
        guard info.role != .replica else { return [] }
        if info.replicas == 0 {
            return [
                Finding(
                    .noReplica, "Redis at \(address) has no replica, so a failover is impossible",
                    advice: "connect a replica, and set min-replicas-to-write to 1")
            ]
        }
        // A report without the section on replication contains neither number.
        guard info.replicas != nil, info.replicasInStep == nil else { return [] }
        return [
            Finding(
                .noMinimumOfReplicas,
                "Redis at \(address) accepts jobs that no replica has (min-replicas-to-write is 0); a failover loses them",
                advice: "set min-replicas-to-write to 1 and min-replicas-max-lag to a few seconds, on all its servers")
        ]
    }

    private static func notReported(_ error: RedisServerError, at address: String) -> Finding {
        guard error.prefix == "NOPERM" else {
            return Finding(
                .notReported,
                "Redis at \(address) does not answer INFO (\(error.message.printable)); its memory and settings are not checked",
                advice: "check maxmemory-policy (noeviction) and appendonly (yes) manually")
        }
        return Finding(
            .notReported,
            "Redis at \(address) denies INFO to this user; its memory, eviction policy and persistence are not checked",
            advice: "add +info to the ACL of the user")
    }
}
