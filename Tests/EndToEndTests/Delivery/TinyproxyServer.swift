import Foundation
import TestSupport

/// tinyproxy as a third-party HTTP proxy, with Basic authentication if a user is given.
final class TinyproxyServer: Sendable {
    let port: Int
    private let process: ChildProcess
    private let folder: TemporaryFolder

    init(user: (name: String, password: String)? = nil) async throws {
        folder = try TemporaryFolder()
        let port = try RedisServer.freePort()
        self.port = port
        let lines = [
            "Port \(port)", "Listen 127.0.0.1", "Allow 127.0.0.1", "Timeout 600", "MaxClients 100",
            "LogFile \"\(folder.path("log"))\"", "LogLevel Info",
            user.map { "BasicAuth \($0.name) \($0.password)" } ?? "",
        ]
        let file = try folder.write(lines.joined(separator: "\n") + "\n", as: "tinyproxy.conf")
        process = try ChildProcess("tinyproxy", ["-d", "-c", file])
        try await process.until("tinyproxy listens") { try self.log().contains("Accepting connections") }
    }

    deinit { process.kill() }

    func log() throws -> String {
        let file = folder.path("log")
        return FileManager.default.fileExists(atPath: file) ? try String(contentsOfFile: file, encoding: .utf8) : ""
    }
}
