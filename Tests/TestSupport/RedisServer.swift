import Foundation
import Synchronization

/// A private `redis-server` on 127.0.0.1 with its own port and directory, by default without any data on disk.
///
/// If `APNS_WORKER_TEST_REDIS_SERVER` is set, it is that program: another version of Redis, or Valkey. Sentinels are the
/// same program.
///
/// It ends with `stop`, with the object, or at the latest with the test process, even if that is killed.
package final class RedisServer: Sendable {
    /// The reason why there is no server.
    package struct Failure: Error, CustomStringConvertible {
        /// The error, with the end of the server's log if there is one.
        package let description: String
    }

    /// True if the program is built with TLS, unless `APNS_WORKER_TEST_REDIS_HAS_TLS` is `no`.
    package static let hasTLS = ProcessInfo.processInfo.environment["APNS_WORKER_TEST_REDIS_HAS_TLS"] != "no"

    private let program: ServerProgram
    private let running: Mutex<ChildProcess?>

    /// Starts a server and waits until it answers PING.
    ///
    /// - Parameters:
    ///   - arguments: options in addition to `--save "" --appendonly no`, such as `["--appendonly", "yes"]`.
    ///   - password: sets `requirepass`.
    ///   - file: lines for a configuration file that the server may write to; Sentinels must have one.
    ///   - tls: true for a second port with TLS, with the `server` of ``TestCertificates``; clients need
    ///     no certificate.
    ///   - cluster: true for a node of a Cluster.
    ///   - environment: further variables of the process.
    ///   - findPort: returns a port to try. If another process has taken it by the time the server starts, the next one
    ///     is tried.
    package init(
        arguments: [String] = [], password: String? = nil, file: [String]? = nil, tls: Bool = false,
        cluster: Bool = false, environment: [String: String] = [:], findPort: (() throws -> Int)? = nil
    ) throws {
        // The helper connections below write to sockets that the server may have closed.
        _ = signal(SIGPIPE, SIG_IGN)
        let directory = FileManager.default.temporaryDirectory.appendingPathComponent("redis-\(UUID().uuidString)")
        try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
        let path = directory.appendingPathComponent("redis.conf")
        try file?.map { $0 + "\n" }.joined().write(to: path, atomically: true, encoding: .utf8)
        let findPort = findPort ?? { try cluster ? Self.freePortOfNode() : Self.freePort() }
        func start() throws -> (ServerProgram, ChildProcess) {
            for _ in 0..<20 {
                let program = ServerProgram(
                    port: try findPort(), tlsPort: tls ? try findPort() : nil, password: password, directory: directory,
                    configurationFile: file == nil ? [] : [path.path],
                    arguments: arguments + (cluster ? ["--cluster-enabled", "yes"] : []), environment: environment)
                if let process = try program.start() { return (program, process) }
            }
            throw Failure(description: "other processes took all ports that were free a moment before")
        }
        do {
            let (program, process) = try start()
            self.program = program
            running = Mutex(process)
        } catch {
            try? FileManager.default.removeItem(at: directory)
            throw error
        }
    }

    deinit {
        kill()
        try? FileManager.default.removeItem(at: directory)
    }

    /// The port on 127.0.0.1.
    package var port: Int { program.port }
    /// The password of the default user, if any.
    package var password: String? { program.password }
    /// The port on 127.0.0.1 for TLS, if it has one.
    package var tlsPort: Int? { program.tlsPort }
    /// The server's working directory.
    package var directory: URL { program.directory }

    /// `redis://127.0.0.1:port`, with the password if there is one.
    package var url: String {
        "redis://" + (password.map { ":\($0)@" } ?? "") + "127.0.0.1:\(port)"
    }

    /// Returns the port for clients with or without TLS.
    func port(tls: Bool) -> Int { tls ? tlsPort ?? port : port }

    /// The server's process id, while it runs.
    package var processIdentifier: Int32? { running.withLock { $0?.processIdentifier } }

    /// Starts the server again after `stop` or `kill`, with the same port and directory.
    package func start() throws {
        guard processIdentifier == nil else { return }
        let deadline = ContinuousClock.now + .seconds(180)
        while true {
            if let process = try program.start() { return running.withLock { $0 = process } }
            guard ContinuousClock.now < deadline else {
                throw Failure(description: "another process has taken port \(port) of the server that was stopped")
            }
            usleep(100_000)
        }
    }

    /// Stops the server gracefully, and waits for its end.
    package func stop() {
        resume()
        running.withLock { $0 }?.send(SIGTERM)
        end(afterGrace: .seconds(180))
    }

    /// Kills the server, as a crash would, and waits for its end.
    package func kill() {
        end(afterGrace: .zero)
    }

    /// Stops the server gracefully, and starts it again with the same port and directory.
    package func restart() throws {
        stop()
        try start()
    }

    /// Stops the server with SIGSTOP, and waits until it has stopped: connections stay open, but nothing is answered.
    package func pause() {
        guard let processIdentifier else { return }
        _ = Foundation.kill(processIdentifier, SIGSTOP)
        // The main thread's state; it executes all commands.
        let state = "/proc/\(processIdentifier)/stat"
        let deadline = ContinuousClock.now + .seconds(180)
        while (try? String(contentsOfFile: state, encoding: .utf8))?.contains(") T ") == false,
            ContinuousClock.now < deadline
        {
            usleep(500)
        }
    }

    /// Undoes `pause`.
    package func resume() {
        if let processIdentifier { _ = Foundation.kill(processIdentifier, SIGCONT) }
    }

    package var log: String { program.log }

    private func end(afterGrace grace: Duration) {
        let ended = running.withLock { running in
            defer { running = nil }
            return running
        }
        guard let ended else { return }
        let deadline = ContinuousClock.now + grace
        while ended.ending == nil, ContinuousClock.now < deadline { usleep(2000) }
        ended.kill()
    }

    /// Returns a port on 127.0.0.1 at which connections are refused until the process ends: no other process can take
    /// it, as it could take one that is only free.
    package static func refusedPort() throws -> Int {
        guard let bound = BoundPort() else { throw Failure(description: "no port on 127.0.0.1 can be reserved") }
        return bound.port
    }

    /// Returns a port on 127.0.0.1 that was free a moment ago.
    ///
    /// It is below those that the system gives to clients, so that a server that is started again finds none of them in
    /// its place.
    package static func freePort() throws -> Int {
        for _ in 0..<100 {
            let port = Int.random(in: 10_000..<32_000)
            if claim([port]) { return port }
        }
        throw Failure(description: "no free port on 127.0.0.1 from 10000 to 31999")
    }

    /// Returns a port that is free together with the one 10,000 above, where the nodes of a Cluster talk to each other:
    /// this distance can be changed only from Redis 7 on.
    private static func freePortOfNode() throws -> Int {
        for _ in 0..<100 {
            let port = Int.random(in: 10_000..<22_000)
            if claim([port, port + 10_000]) { return port }
        }
        throw Failure(description: "no port on 127.0.0.1 that is free together with the one 10,000 above")
    }

    private static let claimed = Mutex<Set<Int>>([])

    /// Reserves free ports for this process, so that a server that is stopped keeps its own.
    private static func claim(_ ports: [Int]) -> Bool {
        guard ports.allSatisfy(isFree) else { return false }
        return claimed.withLock { claimed in
            guard claimed.isDisjoint(with: ports) else { return false }
            claimed.formUnion(ports)
            return true
        }
    }

    private static func isFree(_ port: Int) -> Bool {
        guard let bound = BoundPort(port) else { return false }
        close(bound.descriptor)
        return true
    }
}

/// A `redis-server` with its arguments, to be started once or again.
private struct ServerProgram {
    let port: Int
    let tlsPort: Int?
    let password: String?
    let directory: URL
    let configurationFile: [String]
    let arguments: [String]
    let environment: [String: String]

    /// Starts the server and waits until it answers.
    /// - Returns: `nil` if another process has one of its ports.
    func start() throws -> ChildProcess? {
        let name = ProcessInfo.processInfo.environment["APNS_WORKER_TEST_REDIS_SERVER"] ?? "redis-server"
        let logged = log.utf8.count
        let process = try ChildProcess(
            name, try configurationFile + defaultArguments + tlsArguments + arguments, environment: environment)
        func newLog() -> String { String(decoding: log.utf8.dropFirst(logged), as: UTF8.self) }
        let deadline = ContinuousClock.now + .seconds(180)
        while true {
            if answers(process, log: newLog) { return process }
            guard process.ending == nil else {
                if newLog().contains("Address already in use") { return nil }
                throw RedisServer.Failure(
                    description: "redis-server ended at once; its log says:\n\(log.suffix(1000))")
            }
            guard ContinuousClock.now < deadline else {
                throw RedisServer.Failure(
                    description: "redis-server did not answer within 180 s; its log says:\n\(log.suffix(1000))")
            }
            usleep(5000)
        }
    }

    var log: String {
        (try? String(contentsOf: directory.appendingPathComponent("redis.log"), encoding: .utf8)) ?? ""
    }

    /// Returns true if this server answers PING, and not another one that has its port.
    private func answers(_ process: ChildProcess, log: () -> String) -> Bool {
        guard let connection = try? RedisTestConnection(port: port, password: password),
            let answer = try? connection.run("PING"), answer == .status("PONG"),
            let info = try? connection.run("INFO", "server").text
        else { return false }
        // The program can be a script that starts the server: the process is then another one, but its log is the same.
        return info.contains("process_id:\(process.processIdentifier)\r\n")
            || log().contains("eady to accept connections")
    }

    private var defaultArguments: [String] {
        var arguments = [
            "--bind", "127.0.0.1", "--port", "\(port)", "--dir", directory.path, "--save", "", "--appendonly", "no",
            "--logfile", directory.appendingPathComponent("redis.log").path,
        ]
        if let password { arguments += ["--requirepass", password] }
        return arguments
    }

    private var tlsArguments: [String] {
        get throws {
            guard let tlsPort else { return [] }
            return [
                "--tls-port", "\(tlsPort)", "--tls-auth-clients", "no",
                "--tls-cert-file", try TestCertificates.path("server.pem"),
                "--tls-key-file", try TestCertificates.path("server-key.pem"),
                "--tls-ca-cert-file", try TestCertificates.path("ca.pem"),
                // Between the nodes of a Cluster, certificates of clients are required.
                "--tls-client-cert-file", try TestCertificates.path("client.pem"),
                "--tls-client-key-file", try TestCertificates.path("client-key.pem"),
            ]
        }
    }
}
