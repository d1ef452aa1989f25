import Foundation
import TestSupport
import Testing

@Suite("The apns-simulator command")
struct CommandLineTests {
    @Test("says where it listens, writes its account when asked, and ends with 0 on SIGTERM", .timeLimit(.minutes(1)))
    func lives() async throws {
        let directory = FileManager.default.temporaryDirectory.appending(path: "simulator-\(UUID().uuidString)")
        try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(at: directory) }
        let account = directory.appending(path: "account.json")
        let process = try ChildProcess(
            try BuiltProgram.path("apns-simulator"),
            [
                "--certificate", try TestCertificates.path("server.pem"), "--key",
                try TestCertificates.path("server-key.pem"),
                "--account", account.path, "--port-file", directory.appending(path: "port").path, "--quiet",
                "--rule", "prefix=dead,answer=410",
            ])
        try await eventually("a line that says where it listens") { process.output.hasSuffix("\n") }
        let line = try #require(
            JSONSerialization.jsonObject(with: Data(process.output.utf8)) as? [String: Int])
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

        process.send(SIGUSR1)
        try await eventually("the account") {
            (try? JSONSerialization.jsonObject(with: Data(contentsOf: account))) != nil
        }
        #expect(try String(contentsOf: account, encoding: .utf8).contains("410 Unregistered"))
        try FileManager.default.removeItem(at: account)

        process.send(SIGTERM)
        let ending = try await process.wait()
        #expect(ending == .exited(0))
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
            try BuiltProgram.path("apns-simulator"),
            [
                "--certificate", try TestCertificates.path("server.pem"), "--key",
                try TestCertificates.path("server-key.pem"),
            ] + arguments, timeout: 20)
        #expect(result.status != 0)
        #expect(result.errors.contains(words))
    }
}
