import Foundation
import Synchronization
import TestSupport

/// The Redis under test, in any topology: its address, its faults, and its contents.
///
/// Its methods block the calling thread, some of them for seconds.
protocol QueueServers: Sendable {
    var url: String { get }
    /// The number of replicas that must have a write before it counts as done.
    var replicasToWaitFor: Int { get }
    /// Begins a fault.
    /// - Returns: a description of the fault for the log.
    func begin(_ fault: Fault.RedisFault) async throws -> String?
    func end(_ fault: Fault.RedisFault) async throws
    /// Brings all servers back.
    func heal() async throws
    /// Waits until all servers serve, and all replicas follow their masters.
    func waitUntilWell() async throws
    func connect(for key: String) throws -> RedisTestConnection
}

/// The servers that were killed, stopped or disturbed, by fault.
final class AffectedServers: Sendable {
    private let servers = Mutex<[Fault.RedisFault: RedisServer]>([:])

    func begin(_ fault: Fault.RedisFault, on server: RedisServer) throws {
        servers.withLock { $0[fault] = server }
        switch fault {
        case .kill, .killReplica: server.kill()
        case .pause, .pauseWatcher: server.pause()
        default: try server.connect().begin(fault)
        }
    }

    func end(_ fault: Fault.RedisFault) throws {
        guard let server = servers.withLock({ $0.removeValue(forKey: fault) }) else { return }
        switch fault {
        case .kill, .killReplica: try server.start()
        case .pause, .pauseWatcher: server.resume()
        default: try server.connect().end(fault)
        }
    }
}

extension Durability {
    var replicationArguments: [String] {
        // With the default limit, a replica would restart a large full copy again and again.
        let fullCopies = ["--client-output-buffer-limit", "replica", "0", "0", "0", "--repl-backlog-size", "256mb"]
        let replicas = self == .strict ? ["--min-replicas-to-write", "1", "--min-replicas-max-lag", "3"] : []
        return ["--appendonly", "yes", "--appendfsync", "everysec"] + replicas + fullCopies
    }
}

/// One server with an append-only file.
final class SingleServer: QueueServers {
    private let server: RedisServer
    private let clock: TestClock

    init(_ durability: Durability) throws {
        let fsync = durability == .strict ? "always" : "everysec"
        clock = try TestClock()
        server = try RedisServer(
            arguments: ["--appendonly", "yes", "--appendfsync", fsync], environment: clock.environment)
    }

    var port: Int { server.port }
    var url: String { server.url }
    var replicasToWaitFor: Int { 0 }

    func begin(_ fault: Fault.RedisFault) async throws -> String? {
        switch fault {
        case .kill: server.kill()
        case .restart: try server.restart()
        case .pause, .outage: server.pause()
        case .powerCut: return try await cutPower()
        case .clockForward: try clock.set(by: Fault.clockStep)
        case .clockBack: try clock.set(by: -Fault.clockStep)
        default: try server.connect().begin(fault)
        }
        return nil
    }

    /// Kills the server, and cuts from its file what was written in the last second, as if it had not reached the disk.
    private func cutPower() async throws -> String? {
        let old = try lastFile()
        try await Task.sleep(for: .seconds(1))
        server.kill()
        let new = try lastFile()
        guard old.url == new.url, old.size < new.size else { return "nothing was forgotten" }
        let handle = try FileHandle(forWritingTo: new.url)
        defer { try? handle.close() }
        try handle.truncate(atOffset: UInt64(old.size))
        return "\(new.size - old.size) bytes were forgotten"
    }

    /// Returns the part of the append-only file that is being written.
    private func lastFile() throws -> (url: URL, size: Int) {
        let directory = server.directory.appending(path: "appendonlydir")
        let files = try FileManager.default.contentsOfDirectory(at: directory, includingPropertiesForKeys: nil)
        let parts = files.filter { $0.pathExtension == "aof" && $0.lastPathComponent.contains(".incr.") }
        guard let last = parts.max(by: { ($0.path.count, $0.path) < ($1.path.count, $1.path) }) else {
            throw ChildProcess.Failure(description: "Redis has no append-only file")
        }
        let attributes = try FileManager.default.attributesOfItem(atPath: last.path)
        return (last, (attributes[.size] as? Int) ?? 0)
    }

    func end(_ fault: Fault.RedisFault) async throws {
        switch fault {
        case .kill, .powerCut: try server.start()
        case .pause, .outage: server.resume()
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
        case .killClients: try run("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        case .flushScripts: try run("SCRIPT", "FLUSH")
        case .fill: try run("CONFIG", "SET", "maxmemory", "1")
        default: preconditionFailure("\(fault) takes more than a command")
        }
    }

    /// Ends a fault that a command can cause.
    func end(_ fault: Fault.RedisFault) throws { if fault == .fill { try run("CONFIG", "SET", "maxmemory", "0") } }
}
