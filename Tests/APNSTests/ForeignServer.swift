import Foundation
import NIOConcurrencyHelpers
import TestSupport

enum ForeignServer {
    /// Runs nghttpd, which answers 200 to a POST of any file that it has.
    static func withNghttpd(_ body: (_ port: Int) async throws -> Void) async throws {
        try await withDirectory { directory in
            let devices = directory.appending(path: "3/device")
            try FileManager.default.createDirectory(at: devices, withIntermediateDirectories: true)
            for number in 0..<16 {
                let hex = String(repeating: "0", count: 63) + String(number, radix: 16)
                try Data().write(to: devices.appending(path: hex))
            }
            let port = try RedisServer.freePort()
            try await run(
                [
                    "nghttpd", "--address=127.0.0.1", "--htdocs=\(directory.path)", "--max-concurrent-streams=100",
                    "\(port)", try TestCertificates.path("server-key.pem"), try TestCertificates.path("server.pem"),
                ], port: port, body)
        }
    }

    /// Runs nginx. It answers before it has read a request's body, and closes a connection after 1,000 requests.
    /// - Parameter wantsCertificate: true to answer 400 to clients without a certificate of the tests' authority.
    static func withNginx(wantsCertificate: Bool = false, _ body: (_ port: Int) async throws -> Void) async throws {
        try await withDirectory { directory in
            let port = try RedisServer.freePort()
            let paths = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
                .map { "\($0)_temp_path \(directory.path)/\($0);" }.joined(separator: "\n")
            let configuration = """
                daemon off; master_process off; pid \(directory.path)/nginx.pid; error_log \(directory.path)/error.log;
                events { worker_connections 64; }
                http {
                \(paths)
                access_log off;
                server {
                listen 127.0.0.1:\(port) ssl http2;
                ssl_certificate \(try TestCertificates.path("server.pem"));
                ssl_certificate_key \(try TestCertificates.path("server-key.pem"));
                keepalive_requests 1000;
                \(wantsCertificate ? "ssl_verify_client on;" : "")
                ssl_client_certificate \(try TestCertificates.path("ca.pem"));
                location /3/device { return 200; }
                }
                }
                """
            let file = directory.appending(path: "nginx.conf")
            try Data(configuration.utf8).write(to: file)
            try await run(
                ["nginx", "-p", directory.path, "-e", directory.path + "/error.log", "-c", file.path], port: port, body)
        }
    }

    /// A running haproxy, which can be reloaded as operators do it.
    struct Haproxy: Sendable {
        fileprivate let command: [String]
        fileprivate let processes: NIOLockedValueBox<[ChildProcess]>
        let port: Int

        /// Starts another process on the same port. The running processes finish their work and end.
        func reload() throws {
            let successor = try ChildProcess(command[0], Array(command.dropFirst()))
            let predecessors = processes.withLockedValue { processes in
                defer { processes.append(successor) }
                return processes
            }
            for process in predecessors { process.send(SIGUSR1) }
        }

        var ended: Int { processes.withLockedValue { $0.count { $0.ending != nil } } }
    }

    /// Runs haproxy, which answers 200 to everything with its own HTTP/2 implementation.
    /// - Parameter wantsCertificate: true to end the handshake of clients without a certificate of the tests' authority.
    static func withHaproxy(wantsCertificate: Bool = false, _ body: (Haproxy) async throws -> Void) async throws {
        try await withDirectory { directory in
            let port = try RedisServer.freePort()
            let both = directory.appending(path: "server.pem")
            var pem = try Data(contentsOf: URL(filePath: TestCertificates.path("server.pem")))
            pem += try Data(contentsOf: URL(filePath: TestCertificates.path("server-key.pem")))
            try pem.write(to: both)
            let verify = wantsCertificate ? "ca-file \(try TestCertificates.path("ca.pem")) verify required" : ""
            let configuration = """
                global
                  maxconn 256
                defaults
                  mode http
                  timeout client 60s
                  timeout connect 60s
                  timeout server 60s
                frontend apns
                  bind 127.0.0.1:\(port) ssl crt \(both.path) alpn h2 \(verify)
                  http-request return status 200

                """
            let file = directory.appending(path: "haproxy.cfg")
            try Data(configuration.utf8).write(to: file)
            let command = ["haproxy", "-db", "-f", file.path]
            let first = try ChildProcess(command[0], Array(command.dropFirst()))
            let haproxy = Haproxy(command: command, processes: NIOLockedValueBox([first]), port: port)
            defer { for process in haproxy.processes.withLockedValue({ $0 }) { process.kill() } }
            do {
                try await eventually("haproxy listens, or has ended") { first.ending != nil || isListening(port) }
                try await body(haproxy)
            } catch {
                throw first.failure("\(error)")
            }
        }
    }

    private static func run(
        _ command: [String], port: Int, _ body: (_ port: Int) async throws -> Void
    ) async throws {
        let process = try ChildProcess(command[0], Array(command.dropFirst()))
        defer { process.kill() }
        do {
            try await eventually("\(command[0]) listens, or has ended") { process.ending != nil || isListening(port) }
            try await body(port)
        } catch {
            throw process.failure("\(error)")
        }
    }

    private static func withDirectory(_ body: (URL) async throws -> Void) async throws {
        let directory = FileManager.default.temporaryDirectory.appending(path: "apns-server-\(UUID().uuidString)")
        try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(at: directory) }
        try await body(directory)
    }

    private static func isListening(_ port: Int) -> Bool {
        do {
            _ = try RawConnection(port: port)
            return true
        } catch {
            return false
        }
    }
}
