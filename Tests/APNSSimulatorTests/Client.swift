import APNSSimulator
import Foundation
import TLS
import TestSupport
import Testing

let anyToken = String(repeating: "0123456789abcdef", count: 4)
let anyID = "6F9619FF-8B86-D011-B42D-00C04FC964FF"

/// Runs a simulator for one test, and stops it even if the test throws.
func withSimulator(
    rules: [String] = [], _ change: (inout SimulatorConfiguration) throws -> Void = { _ in },
    _ body: (APNSSimulatorServer) async throws -> Void
) async throws {
    var configuration = SimulatorConfiguration(
        identity: try TLSIdentity(
            certificateFile: try TestCertificates.path("server.pem"),
            keyFile: try TestCertificates.path("server-key.pem")))
    configuration.rules = try rules.map { try FaultRule($0) }
    try change(&configuration)
    let server = try await APNSSimulatorServer.start(configuration)
    do {
        try await body(server)
    } catch {
        try await server.stop(grace: .milliseconds(100))
        throw error
    }
    try await server.stop(grace: .milliseconds(100))
}

/// A request that curl sends.
struct Push {
    var method = "POST"
    var path = "/3/device/" + anyToken
    var body = #"{"aps":{"alert":"x"}}"#
    var headers = [
        "authorization: bearer " + TestTokens.unsigned(), "apns-topic: com.example.app", "apns-push-type: alert",
        "apns-priority: 10", "apns-expiration: 0", "apns-id: " + anyID,
    ]
    /// Further arguments of curl.
    var arguments: [String] = []

    /// The answer that curl received.
    struct Answer {
        var exit: Int32
        var status: Int
        var headers: [String: String]
        var body: String
        /// The number of connections that it took; set by `curl(_:_:)` only.
        var connects = 0
        var reason: String? { member("reason") as? String }

        func member(_ name: String) -> Any? {
            (try? JSONSerialization.jsonObject(with: Data(body.utf8)) as? [String: Any])?[name]
        }
    }

    init(token: String = anyToken, _ change: (inout Push) -> Void = { _ in }) {
        path = "/3/device/" + token
        change(&self)
    }

    /// Sets a header, or removes it if the value is nil.
    mutating func set(_ name: String, _ value: String?) {
        headers.removeAll { $0.hasPrefix(name + ":") }
        // curl sends an empty header only when it is written with a semicolon.
        if let value { headers.append(value.isEmpty ? "\(name);" : "\(name): \(value)") }
    }

    func send(to server: APNSSimulatorServer) async throws -> Answer {
        let result = try await Command.run(
            "/usr/bin/curl",
            [
                "--silent", "--show-error", "--http2", "--cacert", try TestCertificates.path("ca.pem"), "--include",
                "--max-time", "20", "--request", method, "--data-binary", body,
            ] + headers.flatMap { ["--header", $0] } + arguments + ["https://127.0.0.1:\(server.port)\(path)"])
        let text = result.output.replacing("\r\n", with: "\n")
        let parts = text.split(separator: "\n\n", maxSplits: 1, omittingEmptySubsequences: false)
        let lines = parts[0].split(separator: "\n")
        var answer = Answer(exit: result.status, status: 0, headers: [:], body: "")
        if let status = lines.first?.split(separator: " ").dropFirst().first { answer.status = Int(status) ?? 0 }
        for line in lines.dropFirst() {
            let pair = line.split(separator: ":", maxSplits: 1).map { $0.trimmingCharacters(in: .whitespaces) }
            if pair.count == 2 { answer.headers[pair[0]] = pair[1] }
        }
        if parts.count > 1 { answer.body = String(parts[1]) }
        return answer
    }
}

/// Sends requests with nghttp on one connection, and returns its log of frames.
func nghttp(
    _ server: APNSSimulatorServer, tokens: [String], body text: String = #"{"aps":{"alert":"x"}}"#, patience: Int = 20
) async throws -> Command {
    let body = FileManager.default.temporaryDirectory.appending(path: "body-\(UUID().uuidString)")
    try Data(text.utf8).write(to: body)
    defer { try? FileManager.default.removeItem(at: body) }
    return try await Command.run(
        "/usr/bin/nghttp",
        [
            "--verbose", "--null-out", "--timeout=\(patience)s", "--data", body.path,
            "--header", "authorization: bearer " + TestTokens.unsigned(), "--header", "apns-topic: com.example.app",
        ] + tokens.map { "https://127.0.0.1:\(server.port)/3/device/\($0)" }, timeout: Double(patience) + 20)
}

/// Sends many requests with h2load on one connection, and returns its report.
func h2load(
    _ server: APNSSimulatorServer, requests: Int, streams: Int, token: String = anyToken
) async throws -> Command {
    let body = FileManager.default.temporaryDirectory.appending(path: "body-\(UUID().uuidString)")
    try Data(#"{"aps":{"alert":"x"}}"#.utf8).write(to: body)
    defer { try? FileManager.default.removeItem(at: body) }
    return try await Command.run(
        "/usr/bin/h2load",
        [
            "-n", "\(requests)", "-c", "1", "-m", "\(streams)", "-d", body.path,
            "-H", "authorization: bearer " + TestTokens.unsigned(), "-H", "apns-topic: com.example.app",
            "https://127.0.0.1:\(server.port)/3/device/\(token)",
        ])
}
