import Foundation
import TestSupport
import Testing

/// A dashboard with a file of users.
final class WebProcess {
    /// An answer of the dashboard.
    struct Answer {
        let status: Int
        let headers: String
        let body: [String: Any]

        var ids: [String]? { body["ids"] as? [String] }
        var error: String { body["error"] as? String ?? "" }
        var refused: [Int] { (body["refused"] as? [[String: Any]])?.compactMap { $0["number"] as? Int } ?? [] }
        var retryAfter: Int? { headers.firstMatch(of: /(?i)\r\nretry-after: (\d+)\r\n/).flatMap { Int($0.1) } }
    }

    private(set) var process: ChildProcess
    private(set) var address: String
    /// The token of each user.
    private(set) var tokens: [String: String] = [:]
    private let arguments: [String]
    private let directory: URL

    /// Starts a dashboard, and waits until it is open.
    /// - Parameters:
    ///   - redis: the URL of its Redis.
    ///   - users: the options of `web-user` by name.
    init(_ redis: String, _ users: [String: [String]], _ options: [String] = []) async throws {
        directory = FileManager.default.temporaryDirectory.appending(path: "web-\(UUID().uuidString)")
        try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
        var tokens: [String: String] = [:]
        for (name, options) in users {
            let user = try ChildProcess(
                BuiltProgram.path("apns-worker"),
                ["web-user", name, "--token", "--users", directory.appending(path: "users").path] + options)
            #expect(try await user.wait() == .exited(0), "\(user.errors)")
            tokens[name] = String(try #require(user.errors.firstMatch(of: /token +([0-9a-f]+)/)?.1))
        }
        let file = users.isEmpty ? [] : ["--users", directory.appending(path: "users").path]
        arguments = ["web", "--port", "0", "--redis", redis] + file + options
        (process, address) = try await Self.open(arguments)
        self.tokens = tokens
    }

    private static func open(_ arguments: [String]) async throws -> (ChildProcess, address: String) {
        let process = try ChildProcess(BuiltProgram.path("apns-worker"), arguments)
        try await eventually("the dashboard is open") {
            if process.ending != nil { throw process.failure("the dashboard ended") }
            return process.output.contains("dashboard  http")
        }
        return (process, String(try #require(process.output.firstMatch(of: /dashboard  (http\S+)\//)?.1)))
    }

    /// Starts another process after this one has ended, with the same users and at another address.
    func restart() async throws { (process, address) = try await Self.open(arguments) }

    deinit { try? FileManager.default.removeItem(at: directory) }

    /// Returns the path of a file that ends with the dashboard.
    func path(_ name: String) -> String { directory.appending(path: name).path }

    /// Starts a request.
    /// - Parameter user: a user, or a text that is no user's token.
    func ask(
        _ user: String, _ path: String = "/api/v1/jobs", _ body: String?, _ headers: [String] = []
    ) throws -> ChildProcess {
        var arguments = [
            "-sS", "-i", "-g", "--noproxy", "*", "-H", "Authorization: Bearer \(tokens[user] ?? user)", "-H", "Expect:",
        ]
        for header in headers { arguments += ["-H", header] }
        if let body {
            let file = self.path(UUID().uuidString)
            try Data(body.utf8).write(to: URL(filePath: file))
            arguments += ["-H", "Content-Type: application/x-ndjson", "--data-binary", "@\(file)"]
        }
        return try ChildProcess("curl", arguments + [address + path])
    }

    func answer(of curl: ChildProcess) async throws -> Answer {
        #expect(try await curl.wait() == .exited(0), "\(curl.errors)")
        let parts = curl.output.split(separator: "\r\n\r\n", maxSplits: 1)
        try #require(parts.count == 2, "\(curl.output)")
        let status = try #require(parts[0].firstMatch(of: /^HTTP\/1.1 (\d+)/).flatMap { Int($0.1) })
        // A page's error is HTML.
        let isJSON = parts[0].contains("application/json")
        let body =
            isJSON ? try JSONSerialization.jsonObject(with: Data(parts[1].utf8)) as? [String: Any] : nil
        return Answer(status: status, headers: parts[0] + "\r\n", body: body ?? [:])
    }

    func post(
        _ user: String, _ body: String, _ query: String = "", _ headers: [String] = []
    ) async throws -> Answer {
        try await answer(of: ask(user, "/api/v1/jobs\(query)", body, headers))
    }
}
