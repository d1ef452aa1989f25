import Foundation
import TestSupport

/// A master, two replicas and three Sentinels.
///
/// With strict durability, a failover loses at most the claims and settlements of its last moments, and never a job.
final class SentinelServers: QueueServers {
    private let redis: RedisSentinelSet
    private let affected = AffectedServers()

    init(_ durability: Durability) async throws {
        replicasToWaitFor = durability == .strict ? 1 : 0
        redis = try await RedisSentinelSet(downAfter: 1500, arguments: durability.replicationArguments)
    }

    var url: String { redis.url }
    let replicasToWaitFor: Int

    func begin(_ fault: Fault.RedisFault) async throws -> String? {
        let master = try redis.master()
        switch fault {
        case .kill, .pause, .fill, .killClients, .flushScripts: try affected.begin(fault, on: master)
        case .outage: for server in redis.servers { server.pause() }
        case .failOver: try await redis.failOver()
        case .killReplica:
            guard let replica = redis.servers.first(where: { $0 !== master && $0.processIdentifier != nil }) else {
                return "there is none"
            }
            try affected.begin(fault, on: replica)
        case .pauseWatcher: try affected.begin(fault, on: redis.sentinels[1])
        case .restart, .reshard, .moveShard, .powerCut, .clockForward, .clockBack:
            preconditionFailure("not a fault of Sentinels")
        }
        return nil
    }

    func end(_ fault: Fault.RedisFault) async throws {
        if fault == .outage { for server in redis.servers { server.resume() } }
        try affected.end(fault)
    }

    func heal() async throws {
        for server in redis.servers + redis.sentinels {
            server.resume()
            try server.start()
        }
    }

    func connect(for key: String) throws -> RedisTestConnection { try redis.master().connect() }

    /// Waits until all other servers follow the master.
    func waitUntilWell() async throws {
        // A full copy of a gigabyte takes minutes beside a busy fleet.
        do {
            try await eventually("the replicas follow the master", within: .seconds(600)) {
                let master = try? self.redis.master()
                guard let master, let info = try? master.run("INFO", "replication").text else { return false }
                return info.contains("role:master")
                    && info.components(separatedBy: "state=online").count == self.redis.servers.count
            }
        } catch {
            let views = redis.servers.map { server in
                let info = (try? server.run("INFO", "replication").text) ?? "no answer"
                return "\(server.port): " + info.split(whereSeparator: \.isNewline).joined(separator: " ")
            }
            throw ChildProcess.Failure(description: "\(error); \(views.joined(separator: "; "))")
        }
    }
}
