import Foundation

/// A master, its replicas, and the Sentinels that watch over them: all private, on 127.0.0.1.
package final class RedisSentinelSet: Sendable {
    /// The master that the set began with, then its replicas.
    package let servers: [RedisServer]
    package let sentinels: [RedisServer]
    /// The master's name in the Sentinels.
    package let name: String

    private let tls: Bool

    /// Starts a set and waits until the replicas are in step and every Sentinel knows of all.
    ///
    /// - Parameters:
    ///   - downAfter: the milliseconds without an answer after which a Sentinel considers a server down. If it is much
    ///     shorter, a new master counts as down before its first request.
    ///   - arguments: options of the master and the replicas in addition to those of ``RedisServer``.
    ///   - password: the password of the master and the replicas.
    ///   - sentinelPassword: the password of the Sentinels.
    ///   - tls: true if all connections, including those of ``url``, use TLS.
    package init(
        replicas: Int = 2, sentinels: Int = 3, name: String = "mymaster", downAfter: Int = 1500,
        arguments: [String] = [], password: String? = nil, sentinelPassword: String? = nil, tls: Bool = false
    ) async throws {
        self.name = name
        self.tls = tls
        // Without the default delay, a replica that gets another master is in step at once.
        var arguments = arguments + ["--repl-diskless-sync-delay", "0"]
        if let password { arguments += ["--masterauth", password] }
        if tls { arguments += ["--tls-replication", "yes"] }
        let servers = try (0...replicas).map { _ in
            // Sentinel makes a server store its role in the file, so that it restarts in that role.
            try RedisServer(arguments: arguments, password: password, file: [], tls: tls)
        }
        for replica in servers.dropFirst() { try replica.run("REPLICAOF", "127.0.0.1", "\(servers[0].port(tls: tls))") }
        let quorum = sentinels / 2 + 1
        self.servers = servers
        self.sentinels = try (0..<sentinels).map { _ in
            var file = [
                "sentinel monitor \(name) 127.0.0.1 \(servers[0].port(tls: tls)) \(quorum)",
                "sentinel down-after-milliseconds \(name) \(downAfter)",
                "sentinel failover-timeout \(name) 3000",
            ]
            if let password { file.append("sentinel auth-pass \(name) \(password)") }
            if let sentinelPassword { file.append("sentinel sentinel-pass \(sentinelPassword)") }
            if tls { file.append("tls-replication yes") }
            return try RedisServer(arguments: ["--sentinel"], password: sentinelPassword, file: file, tls: tls)
        }
        try await eventually("the Sentinels find each other and the replicas") { try self.isComplete() }
    }

    /// `redis+sentinel://…`, with the passwords if there are any.
    package var url: String {
        let login = servers[0].password.map { ":\($0)@" } ?? ""
        let places = sentinels.map { "localhost:\($0.port(tls: tls))" }.joined(separator: ",")
        let password = sentinels[0].password.map { "&sentinel_password=\($0)" } ?? ""
        return "\(tls ? "rediss" : "redis")+sentinel://\(login)\(places)/?master=\(name)\(password)"
    }

    /// Returns the server that the first living Sentinel names as the master.
    package func master() throws -> RedisServer {
        for sentinel in sentinels where sentinel.processIdentifier != nil {
            let place = try sentinel.run("SENTINEL", "GET-MASTER-ADDR-BY-NAME", name)
            if let port = place.elements?.last?.number, let server = servers.first(where: { $0.port(tls: tls) == port })
            {
                return server
            }
        }
        throw RedisServer.Failure(description: "no Sentinel knows the master")
    }

    /// Makes a replica the master in a graceful failover, and waits until all Sentinels know.
    package func failOver() async throws {
        let old = try master()
        // Right after another failover, a Sentinel refuses for a while (INPROG, NOGOODSLAVE). On a slow machine it may
        // also begin, and abandon the failover silently.
        try await eventually("the Sentinels fail over", orderingEvery: .seconds(15)) {
            try self.sentinels[0].run("SENTINEL", "FAILOVER", self.name) == .status("OK")
        } until: {
            try self.isNamed(otherThan: old)
        }
    }

    /// Waits until every living Sentinel names another master, and that server is a master.
    package func waitForNewMaster(after old: RedisServer) async throws {
        try await eventually("the Sentinels name a new master") { try self.isNamed(otherThan: old) }
    }

    /// Returns true if all living Sentinels name the same other server, and its role is master.
    private func isNamed(otherThan old: RedisServer) throws -> Bool {
        let ports = try sentinels.filter { $0.processIdentifier != nil }.map { sentinel in
            try sentinel.run("SENTINEL", "GET-MASTER-ADDR-BY-NAME", name).elements?.last?.number
        }
        guard let port = ports.first, port != old.port(tls: tls), ports.allSatisfy({ $0 == port }),
            let server = servers.first(where: { $0.port(tls: tls) == port })
        else { return false }
        return try server.run("ROLE").elements?.first == "master"
    }

    private func isComplete() throws -> Bool {
        let inStep = try servers[0].run("INFO", "replication").text ?? ""
        guard inStep.components(separatedBy: "state=online").count == servers.count else { return false }
        return try sentinels.allSatisfy { sentinel in
            let fields = try sentinel.run("SENTINEL", "MASTER", name).elements ?? []
            func number(_ field: RedisValue) -> Int? {
                fields.firstIndex(of: field).flatMap { fields[$0 + 1].number }
            }
            return number("num-slaves") == servers.count - 1
                && number("num-other-sentinels") == sentinels.count - 1
        }
    }
}
