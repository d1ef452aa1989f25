import Foundation
import NIOCore
import TestSupport
import Testing

/// The parts of a test of `apns-worker feedback`: a service, a Redis, and the settings for both.
struct FeedbackScene {
    let redis: RedisServer
    let server: FeedbackServer

    init(arguments: [String] = [], authority: String? = "ca", script: @escaping FeedbackServer.Script) async throws {
        redis = try RedisServer(arguments: arguments)
        server = try await FeedbackServer.start(authority: authority, script: script)
    }

    /// Tokens of 32 bytes that differ by a number.
    static func token(_ number: Int) -> String {
        let hex = String(number, radix: 16)
        return String(repeating: "0", count: 64 - hex.count) + hex
    }

    static func tokens(_ numbers: Range<Int>) -> Set<String> { Set(numbers.map(token)) }

    /// The time at which a token became invalid, in seconds since 1970.
    static func seconds(_ number: Int) -> UInt32 { 1_700_000_000 + UInt32(number) }

    static func bytes(_ numbers: Range<Int>) -> [UInt8] {
        numbers.flatMap { FeedbackServer.tuple(seconds($0), token($0)) }
    }

    /// Returns a script that sends these records and closes the connection, as Apple's service did.
    static func sending(_ numbers: Range<Int>) -> FeedbackServer.Script {
        { peer in
            peer.send(bytes(numbers))
            peer.hangUp()
        }
    }

    /// - Parameter state: the directory for records that are not in Redis yet; `nil` for a new one.
    static func environment(_ redis: String, _ port: Int, state: URL? = nil) throws -> [String: String] {
        [
            "STATE_DIRECTORY": try state?.path ?? StateDirectories.new(), "APNS_WORKER_REDIS_URL": redis,
            "APNS_WORKER_FEEDBACK_ENDPOINT": "localhost:\(port)",
            "APNS_WORKER_CA": try TestCertificates.path("ca.pem"),
            "APNS_WORKER_CERTIFICATE": try TestCertificates.path("client.pem"),
            "APNS_WORKER_CERTIFICATE_KEY": try TestCertificates.path("client-key.pem"),
            "APNS_WORKER_TOPIC": "com.example.app",
        ]
    }

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

    func start(_ arguments: String..., environment: [String: String] = [:]) throws -> ChildProcess {
        try start(arguments, environment)
    }

    private func start(_ arguments: [String], _ environment: [String: String]) throws -> ChildProcess {
        try ChildProcess(
            BuiltProgram.path("apns-worker"), ["feedback"] + arguments,
            environment: Self.environment(redis.url, server.port, state: redis.directory).merging(environment) { $1 })
    }

    /// Runs the command to its end, which is an exit with 0.
    @discardableResult
    func finish(
        _ arguments: String..., environment: [String: String] = [:], at location: SourceLocation = #_sourceLocation
    ) async throws -> EndToEnd.CommandLineTests.Output {
        let process = try start(arguments, environment)
        let result = EndToEnd.CommandLineTests.Output(
            ending: try await process.wait(), output: process.output, errors: process.errors)
        #expect(result.ending == .exited(0), "\(result.errors)", sourceLocation: location)
        return result
    }

    func run(_ arguments: String..., environment: [String: String] = [:]) async throws
        -> EndToEnd.CommandLineTests.Output
    {
        let process = try start(arguments, environment)
        let ending = try await process.wait()
        return .init(ending: ending, output: process.output, errors: process.errors)
    }

    /// The file of records that are not in Redis yet.
    var spill: URL { redis.directory.appending(path: "feedback.ndjson") }

    /// The tokens in the spill file; empty if there is no file.
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

    /// True if exactly these tokens are invalid. They are not compared within a macro, which would print thousands.
    func has(_ numbers: Range<Int>) throws -> Bool { try invalidTokens == Self.tokens(numbers) }

    /// A record as passed to another program.
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
            let decoder = JSONDecoder()
            decoder.keyDecodingStrategy = .convertFromSnakeCase
            self = try decoder.decode(Report.self, from: Data(text.utf8))
        }
    }
}

/// Directories for the state of a process between runs. They are deleted with the test process.
private enum StateDirectories {
    private static let all = FileManager.default.temporaryDirectory.appending(path: "states-\(UUID().uuidString)")
    private static let removal: Void = { atexit { try? FileManager.default.removeItem(at: StateDirectories.all) } }()

    static func new() throws -> String {
        removal
        let directory = all.appending(path: UUID().uuidString)
        try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
        return directory.path
    }
}
