import Foundation
import TestSupport

/// nginx as a third-party substitute for APNs: TLS, HTTP/2, 200 for everything, and a log line per request.
final class NginxServer: Sendable {
    let port: Int
    private let process: ChildProcess
    private let directory: URL

    /// - Parameter requests: the number of requests after which nginx sends GOAWAY and closes a connection.
    init(requestsPerConnection requests: Int) async throws {
        let directory = FileManager.default.temporaryDirectory.appending(path: "nginx-\(UUID().uuidString)")
        let port = try RedisServer.freePort()
        try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
        self.directory = directory
        self.port = port
        let file = directory.appending(path: "nginx.conf")
        try Data(Self.configuration(port, requests, directory.path).utf8).write(to: file)
        let process = try ChildProcess(
            "nginx", ["-p", directory.path, "-e", directory.appending(path: "error.log").path, "-c", file.path])
        self.process = process
        try await eventually("nginx listens") {
            if let ending = process.ending { throw process.failure("ended with \(ending)") }
            // nginx writes this file once it has opened its sockets.
            return FileManager.default.fileExists(atPath: directory.appending(path: "pid").path)
        }
    }

    deinit {
        process.kill()
        try? FileManager.default.removeItem(at: directory)
    }

    /// Returns the answered requests: status, `apns-id` and path.
    func requests() throws -> [(status: String, id: String, path: String)] {
        try String(contentsOf: directory.appending(path: "access.log"), encoding: .utf8).split(separator: "\n").map {
            let words = $0.split(separator: " ").map(String.init)
            guard words.count == 3 else { throw process.failure("an access log of another form: \($0)") }
            return (words[0], words[1], words[2])
        }
    }

    private static func configuration(_ port: Int, _ requests: Int, _ directory: String) throws -> String {
        let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map {
            "\($0)_temp_path \(directory)/\($0);"
        }
        return """
            daemon off; master_process off; pid \(directory)/pid;
            events { worker_connections 64; }
            http {
                \(temporary.joined(separator: "\n"))
                log_format line '$status $http_apns_id $uri';
                access_log \(directory)/access.log line;
                keepalive_requests \(requests);
                server {
                    listen 127.0.0.1:\(port) ssl http2;
                    ssl_certificate \(try TestCertificates.path("server.pem"));
                    ssl_certificate_key \(try TestCertificates.path("server-key.pem"));
                    location /3/device { return 200; }
                }
            }

            """
    }
}
