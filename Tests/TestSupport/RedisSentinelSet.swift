import Foundation

/// A master, its replicas and their Sentinels, all private, on 127.0.0.1.
package final class RedisSentinelSet: Sendable {
    /// The first master, and after it the first replicas.
    package let servers: [RedisServer]
    package let sentinels: [RedisServer]
    /// The name by which Sentinels know the master.
    package let name: String

    private let tls: Bool

    /// Starts all servers, and waits until the replicas are in step and each Sentinel knows all others.
    /// - Parameters:
    ///   - downAfter: a Sentinel considers a server down after this many milliseconds without an answer. With much less, a new master is
    ///     considered down before its first answer.
    ///   - arguments: options of the master and the replicas, in addition to those of ``RedisServer``.
    ///   - password: the password of the master and the replicas.
    ///   - sentinelPassword: the password of the Sentinels.
    ///   - tls: true if all connections use TLS, also those with ``url``.
    package init(
        replicas: Int = 2, sentinels: Int = 3, name: String = "mymaster", downAfter: Int = 1500,
        arguments: [String] = [], password: String? = nil, sentinelPassword: String? = nil, tls: Bool = false
    ) async throws {
        self.name = name
        self.tls = tls
        // With a delay of 0, a replica with a new master is in step at once.
        var arguments = arguments + ["--repl-diskless-sync-delay", "0"]
        if let password { arguments += ["--masterauth", password] }
        if tls { arguments += ["--tls-replication", "yes"] }
        let servers = try (0...replicas).map { _ in
            // A server needs a file (`file`) because Sentinel makes it store its role there. It restarts in that role.
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

    /// Returns the master, according to the first living Sentinel.
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

    /// Lets the Sentinels make a replica the master, and waits until all of them know it.
    package func failOver() async throws {
        let old = try master()
        // For a while after a failover, a Sentinel refuses the next one (INPROG, NOGOODSLAVE). On a slow machine it may also begin one,
        // and abandon it silently.
        try await eventually("the Sentinels fail over", orderingEvery: .seconds(15)) {
            try self.sentinels[0].run("SENTINEL", "FAILOVER", self.name) == .status("OK")
        } until: {
            try self.isNamed(otherThan: old)
        }
    }

    /// Waits until all living Sentinels name another server, which is a master.
    package func waitForNewMaster(after old: RedisServer) async throws {
        try await eventually("the Sentinels name a new master") { try self.isNamed(otherThan: old) }
    }

    /// Returns true if all living Sentinels name one server other than `old`, and this server is a master.
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
