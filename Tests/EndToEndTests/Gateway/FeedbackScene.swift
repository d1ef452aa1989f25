import Foundation
import NIOCore
import TestSupport
import Testing

/// A feedback service, a Redis, and the variables with which `apns-worker feedback` uses them.
struct FeedbackScene {
    let redis: RedisServer
    let server: FeedbackServer

    init(arguments: [String] = [], authority: String? = "ca", script: @escaping FeedbackServer.Script) async throws {
        redis = try RedisServer(arguments: arguments)
        server = try await FeedbackServer.start(authority: authority, script: script)
    }

    /// A token of 32 bytes.
    static func token(_ number: Int) -> String {
        let hex = String(number, radix: 16)
        return String(repeating: "0", count: 64 - hex.count) + hex
    }

    static func tokens(_ numbers: Range<Int>) -> Set<String> { Set(numbers.map(token)) }

    /// The time when a token became invalid, in seconds since 1970.
    static func seconds(_ number: Int) -> UInt32 { 1_700_000_000 + UInt32(number) }

    static func bytes(_ numbers: Range<Int>) -> [UInt8] {
        numbers.flatMap { FeedbackServer.tuple(seconds($0), token($0)) }
    }

    /// Returns a script that sends records and closes the connection, as Apple's service did.
    static func sending(_ numbers: Range<Int>) -> FeedbackServer.Script {
        { peer in
            peer.send(bytes(numbers))
            peer.hangUp()
        }
    }

    /// The variables of the command. The server's folder has the records that are not in Redis yet.
    static func environment(_ redis: RedisServer, _ port: Int) throws -> [String: String] {
        [
            "STATE_DIRECTORY": redis.directory.path, "APNS_WORKER_REDIS_URL": redis.url,
            "APNS_WORKER_FEEDBACK_ENDPOINT": "localhost:\(port)",
            "APNS_WORKER_CA": try TestCertificates.path("ca.pem"), "APNS_WORKER_TOPIC": "com.example.app",
        ].merging(try TestCertificates.clientVariables()) { $1 }
    }

    var environment: [String: String] { get throws { try Self.environment(redis, server.port) } }

    /// Sends some records, and the rest when the gate opens.
    static func halves(_ gate: Gate, _ first: Range<Int>, _ rest: Range<Int>) -> FeedbackServer.Script {
        @Sendable func whenOpen(_ peer: FeedbackPeer) {
            guard gate.isOpen else { return peer.after(.milliseconds(5)) { whenOpen($0) } }
            sending(rest)(peer)
        }
        return { peer in
            peer.send(bytes(first))
            whenOpen(peer)
        }
    }

    func has(_ count: Int, file: StaticString = #fileID, line: UInt = #line) async throws {
        try await eventually("\(count) tokens are written", file: file, line: line) { try invalidTokens.count == count }
    }

    func start(_ arguments: String...) throws -> ChildProcess {
        try ChildProcess(BuiltProgram.path("apns-worker"), ["feedback"] + arguments, environment: environment)
    }

    func run(
        _ arguments: String..., environment: [String: String] = [:]
    ) async throws -> EndToEnd.CommandLineTests.Output {
        try await redis.apnsWorker(["feedback"] + arguments, environment: self.environment.merging(environment) { $1 })
    }

    /// The file with the records that are not in Redis yet.
    var spill: URL { redis.directory.appending(path: "feedback.ndjson") }

    /// The tokens in ``spill``.
    var spilled: [String] {
        get throws {
            guard FileManager.default.fileExists(atPath: spill.path) else { return [] }
            let text = try String(contentsOf: spill, encoding: .utf8)
            // The last line may be incomplete.
            return try Record.all(text.split(separator: "\n").filter { $0.hasSuffix("}") }.joined(separator: "\n"))
                .map(\.token)
        }
    }

    var invalidTokens: Set<String> { get throws { try QueueContents(redis).invalidTokens } }

    /// True if exactly these tokens are invalid. A comparison in `#expect` would print thousands of tokens.
    func has(_ numbers: Range<Int>) throws -> Bool { try invalidTokens == Self.tokens(numbers) }

    /// A record as another program gets it.
    struct Record: Decodable, Equatable {
        let token: String
        let at: Int64
        let app, topic, environment, source, outcome: String

        static func all(_ text: String) throws -> [Record] {
            try text.split(separator: "\n").map { try JSONDecoder().decode(Record.self, from: Data($0.utf8)) }
        }
    }

    struct Report: Decodable {
        struct App: Decodable {
            let app: String
            let records, added, known, registeredSince, spilled, incompleteBytes: Int
            let error: String?
        }

        struct Exec: Decodable {
            let status: Int?
            let error: String?
        }

        let apps: [App]
        let exec: Exec?
        let ok: Bool

        init(_ text: String) throws {
            self = try JSONDecoder.snakeCase.decode(Report.self, from: Data(text.utf8))
        }
    }
}
