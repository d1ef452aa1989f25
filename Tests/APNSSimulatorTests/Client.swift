import APNSSimulator
import Foundation
import TLS
import TestSupport
import Testing

let anyToken = String(repeating: "0123456789abcdef", count: 4)
let anyID = "6F9619FF-8B86-D011-B42D-00C04FC964FF"

/// Returns a device token that begins with two given digits.
func deviceToken(_ prefix: String) -> String { prefix + anyToken.dropFirst(2) }

/// Runs a simulator for one test, and stops it even if the test throws.
/// - Parameters:
///   - streams: the stream limit before the first provider token. nghttp and h2load do not wait for the first limit.
///   - asksForCertificates: true to accept client certificates of the test authority.
func withSimulator(
    rules: [String] = [], streams: Int? = nil, topics: [String]? = nil, recorder: Recorder? = nil,
    hasControlPort: Bool = false, asksForCertificates: Bool = false,
    _ change: (inout SimulatorConfiguration) throws -> Void = { _ in },
    _ body: (APNSSimulatorServer) async throws -> Void
) async throws {
    var configuration = SimulatorConfiguration(identity: try TestCertificates.identity("server"))
    configuration.rules = try rules.map { try FaultRule($0) }
    if let streams { configuration.initialStreams = streams }
    if let topics { configuration.topics = topics }
    if let recorder { configuration.recorder = recorder }
    if hasControlPort { configuration.controlPort = 0 }
    if asksForCertificates { configuration.clientTrust = .file(try TestCertificates.path("ca.pem")) }
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

extension APNSSimulatorServer {
    func accountPage(details: Bool = false) throws -> [String: Any] {
        let page = try JSONSerialization.jsonObject(with: Data(account.json(details: details).utf8))
        return try #require(page as? [String: Any])
    }
}

/// The result of an external client that has ended.
struct Command {
    let status: Int32
    let output: String
    let errors: String

    static func run(_ path: String, _ arguments: [String], input: Data? = nil) async throws -> Command {
        let process = try ChildProcess(path, arguments, input: input)
        guard case .exited(let status) = try await process.wait() else {
            throw process.failure("was ended by a signal")
        }
        return Command(status: status, output: process.output, errors: process.errors)
    }
}

/// A request that curl sends.
struct Push {
    /// curl's arguments for the client certificate of the test authority.
    static let certificate = Result {
        ["--cert", try TestCertificates.path("client.pem"), "--key", try TestCertificates.path("client-key.pem")]
    }

    var method = "POST"
    /// The path, or the whole URL.
    var path = "/3/device/" + anyToken
    var body = #"{"aps":{"alert":"x"}}"#
    var headers = [
        "authorization: bearer " + TestTokens.unsigned(), "apns-topic: com.example.app", "apns-push-type: alert",
        "apns-priority: 10", "apns-expiration: 0", "apns-id: " + anyID,
    ]
    /// Further arguments of curl.
    var arguments: [String] = []

    struct Answer {
        var exit: Int32
        var status = 0
        /// The keys are in lower case.
        var headers: [String: String] = [:]
        var body = ""
        /// The number of connections that curl opened. Only `curl(_:_:)` sets it.
        var connects = 0
        var reason: String? { member("reason") as? String }

        init(_ text: String, exit: Int32 = 0) {
            self.exit = exit
            let parts = text.split(separator: "\n\n", maxSplits: 1, omittingEmptySubsequences: false)
            let lines = parts[0].split(separator: "\n")
            status = lines.first?.split(separator: " ").dropFirst().first.flatMap { Int($0) } ?? 0
            for line in lines.dropFirst() {
                let pair = line.split(separator: ":", maxSplits: 1).map { $0.trimmingCharacters(in: .whitespaces) }
                if pair.count == 2 { headers[pair[0].lowercased()] = pair[1] }
            }
            if parts.count > 1 { body = String(parts[1]) }
        }

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

    mutating func authorize(_ token: String) { set("authorization", "bearer " + token) }

    func send(to server: APNSSimulatorServer) async throws -> Answer {
        let result = try await Command.run("/usr/bin/curl", try commandLine(server))
        return Answer(result.output.replacing("\r\n", with: "\n"), exit: result.status)
    }

    fileprivate func commandLine(_ server: APNSSimulatorServer) throws -> [String] {
        [
            "--silent", "--show-error", "--http2", "--noproxy", "*", "--cacert", try TestCertificates.path("ca.pem"),
            "--include", "--max-time", "30", "--request", method, "--data-binary", body,
        ] + headers.flatMap { ["--header", $0] } + arguments
            + [path.hasPrefix("http") ? path : "https://127.0.0.1:\(server.port)\(path)"]
    }
}

/// Sends requests with curl on one connection, one after another.
func curl(_ server: APNSSimulatorServer, _ pushes: [Push]) async throws -> [Push.Answer] {
    let end = "\n--end--\n"
    let arguments = try pushes.map {
        ["--write-out", "\nconnects: %{num_connects}" + end] + (try $0.commandLine(server))
    }
    let command = try await Command.run("/usr/bin/curl", Array(arguments.joined(separator: ["--next"])))
    return command.output.replacing("\r\n", with: "\n").split(separator: end).map { text in
        var answer = Push.Answer(String(text))
        let parts = answer.body.split(separator: "connects: ", omittingEmptySubsequences: false)
        answer.body = String(parts.first ?? "").trimmingCharacters(in: .newlines)
        answer.connects = parts.last.flatMap { Int($0) } ?? -1
        return answer
    }
}

/// Changes a valid request, and states the expected answer.
struct PushCase: CustomTestStringConvertible, Sendable {
    let testDescription: String
    let status: Int
    /// The reason that the simulator must return, or nil if it must accept the request.
    let reason: String?
    let change: @Sendable (inout Push) -> Void

    init(_ name: String, _ status: Int, _ reason: String?, _ change: @escaping @Sendable (inout Push) -> Void) {
        testDescription = name
        self.status = status
        self.reason = reason
        self.change = change
    }

    /// - Parameter headers: headers to set. A nil value removes the header.
    init(
        _ name: String, _ status: Int, _ reason: String?, _ headers: [String: String?] = [:], method: String? = nil,
        path: String? = nil, body: String? = nil
    ) {
        self.init(name, status, reason) { push in
            for (name, value) in headers { push.set(name, value) }
            if let method { push.method = method }
            if let path { push.path = path }
            if let body { push.body = body }
        }
    }
}

/// Sends requests with nghttp on one connection, and returns its log of frames.
func nghttp(
    _ server: APNSSimulatorServer, tokens: [String], body: String = #"{"aps":{"alert":"x"}}"#, patience: Int = 20
) async throws -> Command {
    try await Command.run(
        "/usr/bin/nghttp",
        [
            "--verbose", "--null-out", "--timeout=\(patience)s", "--data", "/dev/stdin",
            "--header", "authorization: bearer " + TestTokens.unsigned(), "--header", "apns-topic: com.example.app",
        ] + tokens.map { "https://127.0.0.1:\(server.port)/3/device/\($0)" },
        input: Data(body.utf8))
}

/// Sends many requests with h2load on one connection, and returns its report.
func h2load(
    _ server: APNSSimulatorServer, requests: Int, streams: Int, token: String = anyToken
) async throws -> Command {
    try await Command.run(
        "/usr/bin/h2load",
        [
            "-n", "\(requests)", "-c", "1", "-m", "\(streams)", "-d", "/dev/stdin",
            "-H", "authorization: bearer " + TestTokens.unsigned(), "-H", "apns-topic: com.example.app",
            "https://127.0.0.1:\(server.port)/3/device/\(token)",
        ], input: Data(#"{"aps":{"alert":"x"}}"#.utf8))
}

/// Returns the values of SETTINGS_MAX_CONCURRENT_STREAMS that nghttp received, in order.
func limits(_ log: String) -> [Int] {
    var values: [Int] = []
    var isReceived = false
    for line in log.split(separator: "\n") {
        if line.contains(" recv ") { isReceived = true }
        if line.contains(" send ") { isReceived = false }
        if isReceived, let match = line.firstMatch(of: /SETTINGS_MAX_CONCURRENT_STREAMS\(0x03\):(\d+)/) {
            values.append(Int(match.1) ?? -1)
        }
    }
    return values
}
