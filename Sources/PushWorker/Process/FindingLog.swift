import PushQueue

/// Decides which findings about a queue's Redis are logged: each once when it begins and once when it ends. No I/O.
struct FindingLog {
    enum Line: Equatable {
        case found(QueueServer.Finding)
        case ended(QueueServer.Finding.Kind)
    }

    private var logged: Set<QueueServer.Finding.Kind> = []

    /// - Parameter findings: all current findings.
    mutating func update(_ findings: [QueueServer.Finding]) -> [Line] {
        // Lanes log these two themselves, at once.
        let findings = findings.filter { $0.kind != .refusesWrites && $0.kind != .replica }
        var kinds = Set(findings.map(\.kind))
        // Memory oscillates at its limit: once full, it stays full until it is no longer nearly full.
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
