import Foundation
import Synchronization

/// A private `redis-server` on 127.0.0.1 with its own port and directory. By default it writes no data to disk.
///
/// `APNS_WORKER_TEST_REDIS_SERVER` can name another program: another version of Redis, or Valkey. Sentinels use it, too.
///
/// The server ends with `stop`, with this object, or at the latest with the test process, even if that is killed.
package final class RedisServer: Sendable {
    /// The failure of a server that did not start.
    package struct Failure: Error, CustomStringConvertible {
        /// The problem, with the end of the server's log if there is one.
        package let description: String
    }

    /// True unless `APNS_WORKER_TEST_REDIS_HAS_TLS` is `no`, for a program that was built without TLS.
    package static let hasTLS = ProcessInfo.processInfo.environment["APNS_WORKER_TEST_REDIS_HAS_TLS"] != "no"

    private let program: ServerProgram
    private let running: Mutex<ChildProcess?>

    /// Starts a server, and waits until it answers PING.
    /// - Parameters:
    ///   - arguments: options in addition to `--save "" --appendonly no`, such as `["--appendonly", "yes"]`.
    ///   - password: sets `requirepass`.
    ///   - file: the lines of a configuration file, to which the server may write. Sentinels need one.
    ///   - tls: true for a second port with TLS and the certificate `server` of ``TestCertificates``. Clients need no certificate.
    ///   - cluster: true for a node of a Cluster.
    ///   - environment: further variables of the process.
    ///   - findPort: returns a port to try. If another process takes the port before the server does, the next one is tried.
    package init(
        arguments: [String] = [], password: String? = nil, file: [String]? = nil, tls: Bool = false,
        cluster: Bool = false, environment: [String: String] = [:], findPort: (() throws -> Int)? = nil
    ) throws {
        // The connections below may write to a socket that the server has closed.
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

    package var port: Int { program.port }
    package var password: String? { program.password }
    package var tlsPort: Int? { program.tlsPort }
    package var directory: URL { program.directory }

    /// `redis://127.0.0.1:port`, with the password if there is one.
    package var url: String {
        "redis://" + (password.map { ":\($0)@" } ?? "") + "127.0.0.1:\(port)"
    }

    /// Returns the port for clients with or without TLS.
    func port(tls: Bool) -> Int { tls ? tlsPort ?? port : port }

    /// The id of the process; `nil` while the server does not run.
    package var processIdentifier: Int32? { running.withLock { $0?.processIdentifier } }

    /// Starts the server again after `stop` or `kill`, with its port and directory.
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

    /// Stops the server with SIGTERM, and waits for its end.
    package func stop() {
        resume()
        running.withLock { $0 }?.send(SIGTERM)
        end(afterGrace: .seconds(180))
    }

    /// Kills the server with SIGKILL, and waits for its end.
    package func kill() {
        end(afterGrace: .zero)
    }

    /// Stops the server with SIGTERM, and starts it again with its port and directory.
    package func restart() throws {
        stop()
        try start()
    }

    /// Stops the server with SIGSTOP, and waits until it stands still. Connections stay open, but get no answers.
    package func pause() {
        guard let processIdentifier else { return }
        _ = Foundation.kill(processIdentifier, SIGSTOP)
        // The file has the state of the main thread, which executes all commands.
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

    /// Returns a port on 127.0.0.1 that refuses connections until this process ends. Unlike a free port, no other process can take it.
    package static func refusedPort() throws -> Int {
        guard let bound = BoundPort() else { throw Failure(description: "no port on 127.0.0.1 can be reserved") }
        return bound.port
    }

    /// Returns a port on 127.0.0.1 that was free a moment ago.
    ///
    /// The system gives clients higher ports. Therefore none of them has taken this port when a server starts again.
    package static func freePort() throws -> Int {
        for _ in 0..<100 {
            let port = Int.random(in: 10_000..<32_000)
            if claim([port]) { return port }
        }
        throw Failure(description: "no free port on 127.0.0.1 from 10000 to 31999")
    }

    /// Returns a free port. The port higher by 10,000 is also free, for the connections between the nodes of a Cluster. Only Redis 7 or
    /// later can use another port for them.
    private static func freePortOfNode() throws -> Int {
        for _ in 0..<100 {
            let port = Int.random(in: 10_000..<22_000)
            if claim([port, port + 10_000]) { return port }
        }
        throw Failure(description: "no port on 127.0.0.1 that is free together with the one 10,000 above")
    }

    private static let claimed = Mutex<Set<Int>>([])

    /// Reserves free ports for this process, so that a stopped server keeps its port.
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

/// A `redis-server` and its arguments. It can be started several times.
private struct ServerProgram {
    let port: Int
    let tlsPort: Int?
    let password: String?
    let directory: URL
    let configurationFile: [String]
    let arguments: [String]
    let environment: [String: String]

    /// - Returns: the server once it answers; `nil` if another process has one of its ports.
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

    /// Returns true if this server answers PING. Another server may have its port.
    private func answers(_ process: ChildProcess, log: () -> String) -> Bool {
        guard let connection = try? RedisTestConnection(port: port, password: password),
            let answer = try? connection.run("PING"), answer == .status("PONG"),
            let info = try? connection.run("INFO", "server").text
        else { return false }
        // If the program is a script that starts the server, the process has another id, but the log is the same.
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
                // The nodes of a Cluster need certificates as each other's clients.
                "--tls-client-cert-file", try TestCertificates.path("client.pem"),
                "--tls-client-key-file", try TestCertificates.path("client-key.pem"),
            ]
        }
    }
}
