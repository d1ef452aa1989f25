import Foundation
import TestSupport
import Testing

@Suite("The apns-simulator command")
struct CommandLineTests {
    // The tests' own binary lies beside it or, when a helper loads it, its bundle does.
    private static func path() throws -> String {
        let candidates = CommandLine.arguments.map { argument in
            URL(filePath: argument).deletingLastPathComponent().appending(path: "apns-simulator").path
        }
        return try #require(candidates.first { FileManager.default.isExecutableFile(atPath: $0) })
    }

    @Test("says where it listens, writes its account when asked, and ends with 0 on SIGTERM", .timeLimit(.minutes(1)))
    func lives() async throws {
        let directory = FileManager.default.temporaryDirectory.appending(path: "simulator-\(UUID().uuidString)")
        try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(at: directory) }
        let account = directory.appending(path: "account.json")
        let process = Process()
        let output = Pipe()
        process.executableURL = URL(filePath: try Self.path())
        process.arguments = [
            "--certificate", try TestCertificates.path("server.pem"), "--key",
            try TestCertificates.path("server-key.pem"),
            "--account", account.path, "--port-file", directory.appending(path: "port").path, "--quiet",
            "--rule", "prefix=dead,answer=410",
        ]
        process.standardOutput = output
        try process.run()
        defer { if process.isRunning { process.terminate() } }
        let line = try #require(
            JSONSerialization.jsonObject(with: output.fileHandleForReading.availableData) as? [String: Int])
        let port = try #require(line["port"])
        #expect(line["pid"] == Int(process.processIdentifier))
        #expect(try String(contentsOf: directory.appending(path: "port"), encoding: .utf8) == "\(port)\n")

        let answer = try await Command.run(
            "/usr/bin/curl",
            [
                "--silent", "--http2", "--cacert", try TestCertificates.path("ca.pem"), "--data", "{}",
                "--header", "authorization: bearer " + TestTokens.unsigned(), "--header", "apns-topic: com.example.app",
                "https://127.0.0.1:\(port)/3/device/\(FaultTests.dead)",
            ])
        #expect(answer.output.contains("Unregistered"))

        kill(process.processIdentifier, SIGUSR1)
        let deadline = ContinuousClock.now + .seconds(20)
        while !FileManager.default.fileExists(atPath: account.path), ContinuousClock.now < deadline {
            await Task.yield()
        }
        #expect(try String(contentsOf: account, encoding: .utf8).contains("410 Unregistered"))
        try FileManager.default.removeItem(at: account)

        process.terminate()
        process.waitUntilExit()
        #expect(process.terminationStatus == 0)
        #expect(try String(contentsOf: account, encoding: .utf8).contains("\"requests\" : 1"))
    }

    @Test(
        "refuses what it cannot do, and says what",
        arguments: [
            (["--rule", "answer=maybe"], "answer=maybe"), (["--delay", "soon"], "--delay"),
            (["--provider-key", "A:B:/does/not/exist"], "/does/not/exist"),
            (["--provider-key", "A"], "KEYID:TEAMID:FILE"),
            (["--initial-streams", "0"], "--initial-streams"),
        ])
    func refuses(_ arguments: [String], _ words: String) async throws {
        let result = try await Command.run(
            try Self.path(),
            [
                "--certificate", try TestCertificates.path("server.pem"), "--key",
                try TestCertificates.path("server-key.pem"),
            ] + arguments, timeout: 20)
        #expect(result.status != 0)
        #expect(result.errors.contains(words))
    }
}
