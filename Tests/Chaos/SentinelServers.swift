import Foundation
import Synchronization
import TestSupport

/// A master, two replicas and three Sentinels.
///
/// With strict durability, a failover loses at most the claims and settlements of its last moments, and never a job.
final class SentinelServers: QueueServers {
    private let redis: RedisSentinelSet
    /// The servers that were killed or stopped, by the fault that did it.
    private let affected = Mutex<[Fault.RedisFault: RedisServer]>([:])

    init(_ durability: Durability) async throws {
        replicasToWaitFor = durability == .strict ? 1 : 0
        // A replica whose copy is larger than the default limit would begin again and again.
        let fullCopies = ["--client-output-buffer-limit", "replica", "0", "0", "0", "--repl-backlog-size", "256mb"]
        let replicas = durability == .strict ? ["--min-replicas-to-write", "1", "--min-replicas-max-lag", "3"] : []
        redis = try await RedisSentinelSet(
            downAfter: 1500,
            arguments: ["--appendonly", "yes", "--appendfsync", "everysec"] + replicas + fullCopies)
    }

    var url: String { redis.url }
    let replicasToWaitFor: Int

    func begin(_ fault: Fault.RedisFault) async throws -> String? {
        let master = try redis.master()
        switch fault {
        case .kill:
            affected.withLock { $0[fault] = master }
            master.kill()
        case .pause:
            affected.withLock { $0[fault] = master }
            master.pause()
        case .outage: for server in redis.servers { server.pause() }
        case .failOver: try await redis.failOver()
        case .killReplica:
            guard let replica = redis.servers.first(where: { $0 !== master && $0.processIdentifier != nil }) else {
                return "there is none"
            }
            affected.withLock { $0[fault] = replica }
            replica.kill()
        case .pauseWatcher:
            affected.withLock { $0[fault] = redis.sentinels[1] }
            redis.sentinels[1].pause()
        case .fill, .killClients, .flushScripts:
            affected.withLock { $0[fault] = master }
            try master.connect().begin(fault)
        case .restart, .reshard, .powerCut, .clockForward, .clockBack:
            preconditionFailure("not a fault of Sentinels")
        }
        return nil
    }

    func end(_ fault: Fault.RedisFault) async throws {
        if fault == .outage { for server in redis.servers { server.resume() } }
        guard let server = affected.withLock({ $0.removeValue(forKey: fault) }) else { return }
        switch fault {
        case .kill, .killReplica: try server.start()
        case .pause, .pauseWatcher: server.resume()
        default: try server.connect().end(fault)
        }
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
