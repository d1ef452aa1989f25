import Foundation
import TestSupport

/// The Redis under test, whatever its topology: where it is, what can be done to it, and what it holds.
///
/// Its methods wait on the calling thread, some of them for seconds.
protocol QueueServers: Sendable {
    /// Where workers find it.
    var url: String { get }
    /// How many replicas must have a write before it counts as done.
    var replicasToWaitFor: Int { get }
    /// Begins a fault.
    /// - Returns: what there is to tell of it.
    func begin(_ fault: Fault.RedisFault) async throws -> String?
    /// Ends a fault.
    func end(_ fault: Fault.RedisFault) async throws
    /// Brings all servers back.
    func heal() async throws
    /// Waits until all servers serve, and whoever has to follow another does.
    func waitUntilWell() async throws
    /// A connection to the server that holds a key.
    func connect(for key: String) throws -> RedisTestConnection
}

/// One server, with an append-only file that is written before anything is answered.
final class SingleServer: QueueServers {
    private let server: RedisServer

    init() throws {
        server = try RedisServer(arguments: ["--appendonly", "yes", "--appendfsync", "always"])
    }

    var port: Int { server.port }
    var url: String { server.url }
    var replicasToWaitFor: Int { 0 }

    func begin(_ fault: Fault.RedisFault) async throws -> String? {
        switch fault {
        case .kill: server.kill()
        case .restart: try server.restart()
        case .pause: server.pause()
        default: try server.connect().begin(fault)
        }
        return nil
    }

    func end(_ fault: Fault.RedisFault) async throws {
        switch fault {
        case .kill: try server.start()
        case .pause: server.resume()
        default: try server.connect().end(fault)
        }
    }

    func heal() async throws {
        server.resume()
        try server.start()
    }

    func waitUntilWell() async throws {}

    func connect(for key: String) throws -> RedisTestConnection { try server.connect() }
}

extension RedisTestConnection {
    /// Begins a fault that a command can cause.
    func begin(_ fault: Fault.RedisFault) throws {
        switch fault {
        case .killClients:
            try run("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        case .flushScripts: try run("SCRIPT", "FLUSH")
        case .fill: try run("CONFIG", "SET", "maxmemory", "1")
        default: preconditionFailure("\(fault) takes more than a command")
        }
    }

    /// Ends it.
    func end(_ fault: Fault.RedisFault) throws {
        if fault == .fill { try run("CONFIG", "SET", "maxmemory", "0") }
    }
}
