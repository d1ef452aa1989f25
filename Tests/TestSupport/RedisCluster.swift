import Foundation

/// A private Redis Cluster on 127.0.0.1.
package final class RedisCluster: Sendable {
    /// The first masters, and then their replicas in the same order.
    package let nodes: [RedisServer]

    private let tls: Bool

    /// Starts a Cluster with evenly spread slots, and waits until all nodes serve.
    /// - Parameters:
    ///   - replicas: the number of replicas of each master.
    ///   - nodeTimeout: a node is considered dead after this many milliseconds without an answer.
    ///   - arguments: options in addition to those of ``RedisServer``.
    ///   - tls: true if all connections use TLS, also those with ``url``.
    package init(
        masters: Int = 3, replicas: Int = 0, nodeTimeout: Int = 1000, arguments: [String] = [], password: String? = nil,
        tls: Bool = false
    ) async throws {
        self.tls = tls
        var arguments = arguments
        if let password { arguments += ["--masterauth", password] }
        if tls { arguments += ["--tls-cluster", "yes", "--tls-replication", "yes"] }
        nodes = try (0..<masters * (1 + replicas)).map { _ in
            try RedisServer(
                arguments: arguments + [
                    "--cluster-node-timeout", "\(nodeTimeout)", "--cluster-replica-validity-factor", "0",
                    "--repl-diskless-sync-delay", "0",
                ], password: password, tls: tls, cluster: true)
        }
        for (index, node) in nodes.enumerated() { try node.run("CLUSTER", "SET-CONFIG-EPOCH", "\(index + 1)") }
        for index in 0..<masters {
            try nodes[index].addSlots((16384 * index / masters)..<(16384 * (index + 1) / masters))
        }
        for node in nodes.dropFirst() {
            try expectOK(try node.run("CLUSTER", "MEET", "127.0.0.1", "\(nodes[0].port(tls: tls))"), "CLUSTER MEET")
        }
        try await eventually("the nodes meet") {
            try self.nodes.allSatisfy { try self.knownNodes($0) == self.nodes.count }
        }
        for index in masters..<nodes.count {
            let master = try identifier(of: nodes[index % masters])
            try expectOK(try nodes[index].run("CLUSTER", "REPLICATE", master), "CLUSTER REPLICATE")
        }
        try await eventually("all nodes serve") {
            try self.nodes.enumerated().allSatisfy { index, node in
                let isInStep =
                    try index < masters
                    || node.run("INFO", "replication").text?.contains("master_link_status:up") == true
                return try isInStep && node.run("CLUSTER", "INFO").text?.contains("cluster_state:ok") == true
            }
        }
    }

    /// `redis+cluster://…`, with the password if there is one.
    package var url: String {
        "\(tls ? "rediss" : "redis")+cluster://" + (nodes[0].password.map { ":\($0)@" } ?? "")
            + nodes.map { "127.0.0.1:\($0.port(tls: tls))" }.joined(separator: ",")
    }

    package func slot(of key: String) throws -> Int {
        try living().run("CLUSTER", "KEYSLOT", key).number ?? -1
    }

    /// - Parameter witness: the node that is asked for the slot's owner; `nil` for any living node.
    package func owner(ofSlot slot: Int, by witness: RedisServer? = nil) throws -> RedisServer {
        let ranges = try (witness ?? living()).run("CLUSTER", "SLOTS").elements ?? []
        for range in ranges.compactMap(\.elements) where range.count > 2 {
            guard let first = range[0].number, let last = range[1].number, (first...last).contains(slot) else {
                continue
            }
            let port = range[2].elements?[1].number
            if let node = nodes.first(where: { $0.port == port }) { return node }
        }
        throw RedisServer.Failure(description: "nobody owns slot \(slot)")
    }

    /// Begins to move a slot. From now on, the old owner sends clients to the new one for each key that the old owner does not have.
    package func beginMigration(ofSlot slot: Int, from old: RedisServer, to new: RedisServer) throws {
        // First the new node must consider the old one the owner. A node that imports a slot ignores news about the slot's owner. After a
        // broken move and a failover of the old node, it would consider the slot unassigned, and refuse all keys.
        try expectOK(try new.run("CLUSTER", "SETSLOT", "\(slot)", "NODE", identifier(of: old)), "SETSLOT NODE")
        try expectOK(
            try new.run("CLUSTER", "SETSLOT", "\(slot)", "IMPORTING", identifier(of: old)), "SETSLOT IMPORTING")
        try expectOK(
            try old.run("CLUSTER", "SETSLOT", "\(slot)", "MIGRATING", identifier(of: new)), "SETSLOT MIGRATING")
    }

    /// Moves the keys of a slot during its move. If both nodes have a key after a broken move, the old owner's value wins.
    package func migrateKeys(ofSlot slot: Int, from old: RedisServer, to new: RedisServer) throws {
        while let keys = try old.run("CLUSTER", "GETKEYSINSLOT", "\(slot)", "100").elements, !keys.isEmpty {
            for key in keys.compactMap(\.text) {
                var command = ["MIGRATE", "127.0.0.1", "\(new.port(tls: tls))", key, "0", "5000", "REPLACE"]
                if let password = new.password { command += ["AUTH", password] }
                let answer = try old.connect().run(command.map { Array($0.utf8) })
                // NOKEY: a worker has claimed the last job of a list since.
                guard answer == .status("OK") || answer == .status("NOKEY") else {
                    throw RedisServer.Failure(description: "MIGRATE: \(answer)")
                }
            }
        }
    }

    package func finishMigration(ofSlot slot: Int, from old: RedisServer, to new: RedisServer) throws {
        let identifier = try identifier(of: new)
        // The new owner is first. Otherwise, if it failed after the old one's command, the slot would have no owner.
        for node in [new, old] + nodes.filter({ $0 !== new && $0 !== old && $0.processIdentifier != nil }) {
            let answer = try node.run("CLUSTER", "SETSLOT", "\(slot)", "NODE", identifier)
            // Replicas refuse the command ("only with masters"), and learn the owner from their masters.
            if answer != .status("OK"), answer.text?.contains("masters") != true {
                throw RedisServer.Failure(description: "SETSLOT NODE: \(answer)")
            }
        }
    }

    package func migrate(slot: Int, from old: RedisServer, to new: RedisServer) throws {
        try beginMigration(ofSlot: slot, from: old, to: new)
        try migrateKeys(ofSlot: slot, from: old, to: new)
        try finishMigration(ofSlot: slot, from: old, to: new)
    }

    private func living() throws -> RedisServer {
        guard let node = nodes.first(where: { $0.processIdentifier != nil }) else {
            throw RedisServer.Failure(description: "no node of the Cluster runs")
        }
        return node
    }

    private func identifier(of node: RedisServer) throws -> String {
        try node.run("CLUSTER", "MYID").text ?? ""
    }

    private func knownNodes(_ node: RedisServer) throws -> Int {
        let lines = try node.run("CLUSTER", "NODES").text?.split(separator: "\n") ?? []
        return lines.filter { !$0.contains("handshake") && !$0.contains("noaddr") }.count
    }

    private func expectOK(_ answer: RedisValue, _ command: String) throws {
        guard answer == .status("OK") else { throw RedisServer.Failure(description: "\(command): \(answer)") }
    }
}
