import Foundation
import TestSupport
import Testing

/// The programs of `Tests/Foreign`: servers and clients with third-party libraries.
enum ForeignProgram {
    private static let sources = Repository.root.appending(path: "Tests/Foreign")
    /// The folder is kept between runs, because installations and builds take many seconds of CPU time.
    private static let kept = Repository.path(".build-test/foreign")
    private static let workshop = FileManager.default.temporaryDirectory
        .appending(path: "foreign-\(UUID().uuidString)").path
    /// The variables with which Go builds without a network, from Debian's packages.
    static let goVariables = ["GO111MODULE": "off", "GOPATH": "/usr/share/gocode", "GOCACHE": kept + "/go-cache"]

    /// Returns the path of the Go program, which is built on first use.
    static func go() async throws -> String { try await goProgram.value }

    static func python(_ name: String) -> [String] { ["/usr/bin/python3", "-B", sources.appending(path: name).path] }

    /// Returns the command that runs a Python program with aioapns, which is installed from PyPI on first use; `nil` if
    /// PyPI is unreachable.
    static func aioapns(_ name: String) async throws -> [String]? {
        try await aioapnsPython.value.map { [$0, sources.appending(path: name).path] }
    }

    private static let goProgram = Task {
        let files = try FileManager.default.contentsOfDirectory(atPath: sources.appending(path: "go").path).filter {
            $0.hasSuffix(".go")
        }
        return try await build(files.sorted().map { sources.appending(path: "go/\($0)").path }, as: "go")
    }

    /// Builds a Go program, and returns its path.
    static func build(_ files: [String], as name: String) async throws -> String {
        let path = try makeWorkshop() + "/\(name)"
        let build = try ChildProcess("/usr/bin/go", ["build", "-o", path] + files, environment: goVariables)
        guard try await build.wait() == .exited(0) else { throw build.failure("does not build") }
        return path
    }

    private static let aioapnsPython = Task { try await installed("aioapns", ["aioapns==4.0"]).map { $0 + "/python" } }

    /// Installs packages from PyPI into an environment of their own, unless an earlier run has done so.
    /// - Parameter packages: the packages with their versions. Other versions get another environment.
    /// - Returns: the folder of the packages' programs; `nil` if PyPI is unreachable.
    static func installed(_ name: String, _ packages: [String]) async throws -> String? {
        let path = kept + "/" + packages.joined(separator: ",")
        // The file is written last, so that an interrupted installation starts again.
        let mark = path + "/installed"
        if FileManager.default.fileExists(atPath: mark) { return path + "/bin" }
        let environment = try ChildProcess("/usr/bin/python3", ["-m", "venv", "--clear", path])
        guard try await environment.wait() == .exited(0) else {
            throw environment.failure("failed")
        }
        let install = try ChildProcess(
            path + "/bin/python", ["-m", "pip", "install", "--retries", "1", "--timeout", "20"] + packages)
        if try await install.wait() == .exited(0) {
            try Data().write(to: URL(filePath: mark))
            return path + "/bin"
        }
        // pip's message for every failure below HTTP.
        if install.errors.contains("after connection broken by") { return nil }
        throw install.failure("cannot install \(name)")
    }

    private static func makeWorkshop() throws -> String {
        atexit { try? FileManager.default.removeItem(atPath: ForeignProgram.workshop) }
        try FileManager.default.createDirectory(atPath: workshop, withIntermediateDirectories: true)
        return workshop
    }
}

/// A server of ``ForeignProgram`` that receives documents. It prints a line of JSON for each request.
final class ForeignReceiver: Sendable {
    let port: Int
    let process: ChildProcess
    private let folder: TemporaryFolder

    /// - Parameters:
    ///   - behaviour: the contents of the file that decides how the program answers.
    ///   - port: 0 for a free one.
    init(
        _ program: String, behaviour: String, port: Int = 0, withTLS: Bool = false, arguments more: [String] = []
    ) async throws {
        folder = try TemporaryFolder()
        var arguments = ["--behaviour", try folder.write(behaviour, as: "behaviour"), "--port", "\(port)"] + more
        if withTLS {
            arguments += [
                "--certificate", try TestCertificates.path("server.pem"), "--key",
                try TestCertificates.path("server-key.pem"),
            ]
        }
        let process = try ChildProcess(ForeignProgram.python(program) + arguments)
        try await process.until("the receiver listens") { process.output.contains("}\n") }
        self.process = process
        let line = try #require(process.output.split(separator: "\n").first)
        self.port = try JSONDecoder().decode([String: Int].self, from: Data(line.utf8))["port"] ?? 0
    }

    func behave(_ behaviour: String) throws { try folder.write(behaviour, as: "behaviour") }

    func requests<Request: Decodable>(_: Request.Type) throws -> [Request] {
        // The last line may be incomplete.
        let output = process.output
        let whole = output.lastIndex(of: "\n").map { output[..<$0] } ?? ""
        return try whole.split(separator: "\n").dropFirst().map {
            try JSONDecoder().decode(Request.self, from: Data($0.utf8))
        }
    }

    func stop() { process.kill() }
}

/// A server of ``ForeignProgram`` in place of APNs.
final class ForeignServerProcess: Sendable {
    /// The server's account. It distinguishes notifications by their device tokens, because each job has its own.
    struct Account: Decodable {
        /// The numbers of complete requests and of accepted requests, with or without an answer.
        let requests, accepted: Int
        /// The number of device tokens of accepted notifications.
        let distinct: Int
        /// The number of requests whose `apns-id` differs from the first `apns-id` of their device token.
        let changedIDs: Int
        let goAways, resets, cuts, settings, restarts: Int
        let violations: [String]

        var duplicates: Int { accepted - distinct }
    }

    let port: Int
    private let process: ChildProcess

    /// - Parameter command: the program and its arguments. The program prints its port as JSON once it listens.
    init(_ command: [String]) async throws {
        let identity = [
            "--certificate", try TestCertificates.path("server.pem"), "--key",
            try TestCertificates.path("server-key.pem"),
        ]
        let process = try ChildProcess(command + identity)
        try await process.until("the server listens") { process.output.hasSuffix("}\n") }
        self.process = process
        port = try JSONDecoder().decode([String: Int].self, from: Data(process.output.utf8))["port"] ?? 0
    }

    func stop() async throws -> Account {
        process.send(SIGTERM)
        guard try await process.wait() == .exited(0), let line = process.output.split(separator: "\n").last else {
            throw process.failure("failed")
        }
        return try JSONDecoder().decode(Account.self, from: Data(line.utf8))
    }
}
