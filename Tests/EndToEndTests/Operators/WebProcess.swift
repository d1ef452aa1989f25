import Foundation
import TestSupport
import Testing

/// A dashboard with a file of users.
final class WebProcess {
    struct Answer {
        let status: Int
        /// The status line and the header.
        let head: String
        let text: String
        /// The JSON object; empty if the text is HTML.
        let body: [String: Any]

        var ids: [String]? { body["ids"] as? [String] }
        var error: String { body["error"] as? String ?? "" }
        var refused: [Int] { (body["refused"] as? [[String: Any]])?.compactMap { $0["number"] as? Int } ?? [] }
        var retryAfter: Int? { head.firstMatch(of: /(?i)\r\nretry-after: (\d+)\r\n/).flatMap { Int($0.1) } }
    }

    private(set) var process: ChildProcess
    private(set) var address: String
    /// The token of each user.
    private(set) var tokens: [String: String] = [:]
    private let arguments: [String]
    private let environment: [String: String]
    private let folder: TemporaryFolder

    /// Starts a dashboard, and waits until it is open.
    /// - Parameters:
    ///   - redis: the URL of the dashboard's Redis.
    ///   - users: the options of `web-user` by name.
    init(
        _ redis: String, _ users: [String: [String]], _ options: [String] = [], environment: [String: String] = [:]
    ) async throws {
        folder = try TemporaryFolder()
        var tokens: [String: String] = [:]
        for (name, options) in users {
            let user = try await EndToEnd.CommandLineTests.run(
                ["web-user", name, "--token", "--users", folder.path("users")] + options
            ).succeeds()
            tokens[name] = String(try #require(user.errors.firstMatch(of: /token +([0-9a-f]+)/)?.1))
        }
        let file = users.isEmpty ? [] : ["--users", folder.path("users")]
        arguments = ["web", "--port", "0"] + file + options
        self.environment = environment.merging(["APNS_WORKER_REDIS_URL": redis]) { $1 }
        (process, address) = try await Self.open(arguments, self.environment)
        self.tokens = tokens
    }

    private static func open(
        _ arguments: [String], _ environment: [String: String]
    ) async throws -> (ChildProcess, address: String) {
        let process = try ChildProcess(BuiltProgram.path("apns-worker"), arguments, environment: environment)
        try await process.until("the dashboard is open") { process.output.contains("dashboard  http") }
        return (process, String(try #require(process.output.firstMatch(of: /dashboard  (http\S+)\//)?.1)))
    }

    /// Starts the dashboard again with the same users, at another address.
    func restart() async throws { (process, address) = try await Self.open(arguments, environment) }

    var port: Int { get throws { try #require(address.split(separator: ":").last.flatMap { Int($0) }) } }

    /// Returns the path of a file that is removed with this object.
    func path(_ name: String) -> String { folder.path(name) }

    /// Sends a GET, or a POST if there is a body.
    /// - Parameter user: a user, or any text as a token.
    func ask(
        _ user: String, _ path: String, _ body: String? = nil, _ headers: [String] = []
    ) async throws -> Answer {
        let own =
            ["Authorization: Bearer \(tokens[user] ?? user)"]
            + (body == nil ? [] : ["Content-Type: application/x-ndjson"])
        let answer = try await RawConnection.request(
            path, port: port, method: body == nil ? "GET" : "POST", headers: own + headers, body: body ?? "",
            within: .seconds(180))
        let isJSON = answer.head.contains("application/json")
        return Answer(
            status: answer.status, head: answer.head, text: answer.body,
            body: isJSON ? try jsonObject(answer.body) : [:])
    }

    /// Sends a request with a JSON object.
    func ask(_ user: String, _ path: String, json: [String: Any]) async throws -> Answer {
        try await ask(user, path, String(decoding: try JSONSerialization.data(withJSONObject: json), as: UTF8.self))
    }

    /// Enqueues jobs.
    func post(
        _ user: String, _ body: String, _ query: String = "", _ headers: [String] = []
    ) async throws -> Answer {
        try await ask(user, "/api/v1/jobs\(query)", body, headers)
    }
}

func jsonObjects(_ lines: String) throws -> [[String: Any]] {
    try lines.split(separator: "\n").map { try jsonObject($0) }
}

func jsonObject(_ text: some StringProtocol) throws -> [String: Any] {
    try #require(try JSONSerialization.jsonObject(with: Data(text.utf8)) as? [String: Any], "\(text)")
}
