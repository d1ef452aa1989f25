import Foundation
import TestSupport

/// tinyproxy as a third-party HTTP proxy, with Basic authentication if a user is given.
final class TinyproxyServer: Sendable {
    let port: Int
    private let process: ChildProcess
    private let directory: URL

    init(user: (name: String, password: String)? = nil) async throws {
        let directory = FileManager.default.temporaryDirectory.appending(path: "tinyproxy-\(UUID().uuidString)")
        try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
        let port = try RedisServer.freePort()
        self.directory = directory
        self.port = port
        let file = directory.appending(path: "tinyproxy.conf")
        let lines = [
            "Port \(port)", "Listen 127.0.0.1", "Allow 127.0.0.1", "Timeout 600", "MaxClients 100",
            "LogFile \"\(directory.appending(path: "log").path)\"", "LogLevel Info",
            user.map { "BasicAuth \($0.name) \($0.password)" } ?? "",
        ]
        try Data((lines.joined(separator: "\n") + "\n").utf8).write(to: file)
        let process = try ChildProcess("tinyproxy", ["-d", "-c", file.path])
        self.process = process
        try await eventually("tinyproxy listens") {
            if let ending = process.ending { throw process.failure("ended with \(ending)") }
            return try self.log().contains("Accepting connections")
        }
    }

    deinit {
        process.kill()
        try? FileManager.default.removeItem(at: directory)
    }

    func log() throws -> String {
        let file = directory.appending(path: "log")
        return FileManager.default.fileExists(atPath: file.path) ? try String(contentsOf: file, encoding: .utf8) : ""
    }
}
