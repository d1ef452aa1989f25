import Foundation
import TestSupport

/// Three masters with a replica each.
final class ClusterServers: QueueServers {
    /// A node does not answer while it moves a large key. With a shorter timeout it would be failed over in the middle of the move, and the
    /// keys that the other node had already received would be lost: the replica does not know of the move.
    private static let nodeTimeout = 5000
    /// The maximum size of a list, in bytes, for a move of its slot. A key is moved as a whole, which blocks both nodes.
    private static let largestMove = 32 << 20
    /// Six nodes on a machine with few cores take a while to agree again.
    private static let patience = Duration.seconds(180)

    private let cluster: RedisCluster
    private let queue: HotQueue
    /// The slots of the queues, in the order of the queues.
    private let slots: [Int]
    private let sharedSlot: Int
    private let affected = AffectedServers()

    init(_ durability: Durability, _ queue: HotQueue) async throws {
        self.queue = queue
        replicasToWaitFor = durability == .strict ? 1 : 0
        cluster = try await RedisCluster(
            replicas: 1, nodeTimeout: Self.nodeTimeout, arguments: durability.replicationArguments)
        let cluster = cluster
        slots = try queue.names.map { try cluster.slot(of: HotQueue.jobsKey($0)) }
        sharedSlot = try cluster.slot(of: "push:{shared}:invalid-tokens")
    }

    var url: String { cluster.url }
    let replicasToWaitFor: Int

    func begin(_ fault: Fault.RedisFault) async throws -> String? {
        // Each queue can be the one whose server fails.
        let slot = slots.randomElement() ?? sharedSlot
        let owner = try cluster.owner(ofSlot: slot)
        switch fault {
        case .kill, .pause, .fill, .killClients, .flushScripts: try affected.begin(fault, on: owner)
        case .outage: for server in cluster.nodes { server.pause() }
        case .failOver: try await failOver(from: owner, of: slot)
        case .killReplica:
            guard let replica = try replica(of: owner) else { return "there is none" }
            try affected.begin(fault, on: replica)
        case .reshard: return try await moveQueues()
        case .moveShard: return try await moveShard()
        case .restart, .pauseWatcher, .powerCut, .clockForward, .clockBack:
            preconditionFailure("not a fault of a Cluster")
        }
        return nil
    }

    func end(_ fault: Fault.RedisFault) async throws {
        if fault == .outage { for server in cluster.nodes { server.resume() } }
        try affected.end(fault)
    }

    func heal() async throws {
        for server in cluster.nodes {
            server.resume()
            try server.start()
        }
    }

    func connect(for key: String) throws -> RedisTestConnection {
        try cluster.owner(ofSlot: cluster.slot(of: key)).connect()
    }

    /// Makes a replica the master in a graceful failover.
    private func failOver(from owner: RedisServer, of slot: Int) async throws {
        guard let replica = try replica(of: owner) else { return }
        // A replica abandons a failover after five seconds, silently.
        try await eventually("the replica takes over", within: Self.patience, orderingEvery: .seconds(6)) {
            _ = try? replica.run("CLUSTER", "FAILOVER")
            return true
        } until: {
            try self.cluster.owner(ofSlot: slot, by: replica) === replica
        }
    }

    /// Moves the slot of each queue, and that of the keys that all queues share.
    private func moveQueues() async throws -> String {
        try await move(sharedSlot)
        var moved = ["shared"]
        for (name, slot) in zip(queue.names, slots) {
            let key = HotQueue.jobsKey(name)
            let size = try connect(for: key).run("MEMORY", "USAGE", key).number ?? 0
            guard size < Self.largestMove else { continue }
            try await move(slot)
            moved.append(name)
        }
        return moved.joined(separator: ", ")
    }

    /// Moves the slot of a shard of the invalid tokens.
    private func moveShard() async throws -> String {
        let tag = "shared.\(ChaosRun.shards).\(Int.random(in: 0..<ChaosRun.shards))"
        try await move(try cluster.slot(of: "push:{\(tag)}:invalid-tokens"))
        return tag
    }

    /// Moves a slot to another master.
    ///
    /// On a busy machine nodes sometimes consider others dead, and refuse all commands for a while. A move that has
    /// begun is repeated until it succeeds: while a slot is between two nodes, no script can reach all its keys.
    private func move(_ slot: Int) async throws {
        try await eventually("the slot moves", within: Self.patience) {
            // The owner itself is asked, because the target of a broken move does not learn of a failover of the source.
            let owner = self.cluster.nodes.first { (try? self.cluster.owner(ofSlot: slot, by: $0)) === $0 }
            guard let owner else { return false }
            let masters = self.cluster.nodes.filter { $0 !== owner && self.isMaster($0) }
            // After a broken move, one node already has some of the keys, so this node is chosen again.
            guard let new = masters.max(by: { self.keys(of: slot, on: $0) < self.keys(of: slot, on: $1) }) else {
                return false
            }
            return (try? self.cluster.migrate(slot: slot, from: owner, to: new)) != nil
        }
    }

    private func keys(of slot: Int, on node: RedisServer) -> Int {
        (try? node.run("CLUSTER", "COUNTKEYSINSLOT", "\(slot)").number) ?? -1
    }

    private func isMaster(_ node: RedisServer) -> Bool { (try? node.run("ROLE").elements?.first) == "master" }

    private func replica(of owner: RedisServer) throws -> RedisServer? {
        cluster.nodes.first { node in
            guard let role = try? node.run("ROLE").elements, role.count > 2, role[0] == "slave" else { return false }
            return role[2].number == owner.port
        }
    }

    /// Waits until all nodes agree on the owner of each slot, and it is served, with a replica in step.
    func waitUntilWell() async throws {
        try await eventually("the Cluster serves", within: Self.patience) {
            let slots = self.slots + [self.sharedSlot]
            let owners = slots.map { try? self.cluster.owner(ofSlot: $0) }
            return self.cluster.nodes.allSatisfy { node in
                guard node.processIdentifier != nil else { return false }
                let state = try? node.run("CLUSTER", "INFO").text
                let role = try? node.run("ROLE").elements
                return state?.contains("cluster_state:ok") == true && (role?[0] != "slave" || role?[3] == "connected")
                    && zip(slots, owners).allSatisfy { slot, owner in
                        owner != nil && (try? self.cluster.owner(ofSlot: slot, by: node)) === owner
                    }
            }
        }
    }
}
