import Foundation
import TestSupport
import Testing

@Suite("The standalone apns-simulator command", .timeLimit(.minutes(2)))
struct ControlCommandTests {
    private struct Announcement: Decodable {
        let port: Int
        let controlPort: Int?
    }

    private let directory = FileManager.default.temporaryDirectory.appending(path: "simulator-\(UUID().uuidString)")

    private func start(_ arguments: [String]) async throws -> (ChildProcess, Announcement) {
        let process = try ChildProcess(try BuiltProgram.path("apns-simulator"), arguments)
        try await eventually("a line that says where it listens") {
            if let ending = process.ending { throw process.failure("\(ending)") }
            return process.output.contains("\n")
        }
        let line = try #require(process.output.split(separator: "\n").first)
        let decoder = JSONDecoder()
        decoder.keyDecodingStrategy = .convertFromSnakeCase
        return (process, try decoder.decode(Announcement.self, from: Data(line.utf8)))
    }

    private func push(_ port: Int, host: String = "127.0.0.1", token: String = anyToken) async throws -> Command {
        let certificates = directory.appending(path: "certs").path
        return try await Command.run(
            "/usr/bin/curl",
            [
                "--silent", "--show-error", "--noproxy", "*", "--http2", "--cacert", "\(certificates)/ca.pem", "--cert",
                "\(certificates)/client.pem", "--key", "\(certificates)/client-key.pem", "--data",
                #"{"aps":{"alert":"x"}}"#, "--write-out", "%{http_code}", "--resolve",
                "simulator.test:\(port):127.0.0.1", "https://\(host):\(port)/3/device/\(token)",
            ])
    }

    @Test("makes its own certificates, records requests, and loses nothing on SIGTERM")
    func whole() async throws {
        try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(at: directory) }
        let record = directory.appending(path: "record").path
        let (process, announcement) = try await start([
            "--write-certificates", directory.appending(path: "certs").path, "--server-name", "simulator.test",
            "--control-port", "0", "--record", record, "--rule", "prefix=dead,answer=410",
        ])
        for host in ["127.0.0.1", "localhost", "simulator.test"] {
            #expect(try await push(announcement.port, host: host).output == "200")
        }
        #expect(try await push(announcement.port, token: FaultTests.dead).output.hasSuffix("410"))
        // Lines are written before the answer is sent, for programs that follow the file.
        let lines = try String(contentsOfFile: record, encoding: .utf8).split(separator: "\n")
        #expect(lines.count == 4 && lines.last?.contains(#""outcome":{"status":410,"reason":"Unregistered"}"#) == true)
        let page = try await ControlRequest("GET", "/notifications", port: announcement.controlPort)
        #expect(try (page.json["notifications"] as? [Any])?.count == 4)
        let port = try #require(announcement.controlPort)
        for (host, status) in [("simulator.test", "200"), ("evil.example", "403")] {
            let asked = try await Command.run(
                "/usr/bin/curl",
                [
                    "--silent", "--show-error", "--noproxy", "*", "--output", "/dev/null", "--write-out",
                    "%{http_code}", "--header", "Host: \(host)", "http://127.0.0.1:\(port)/rules",
                ])
            #expect(asked.output == status, "\(host)")
        }
        process.send(SIGTERM)
        #expect(try await process.wait() == .exited(0))
        #expect(try String(contentsOfFile: record, encoding: .utf8).split(separator: "\n").count == 4)
    }

    @Test("keeps at most the configured number, and records to standard output after its first line")
    func standardOutput() async throws {
        try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(at: directory) }
        let (process, announcement) = try await start([
            "--write-certificates", directory.appending(path: "certs").path, "--control-port", "0", "--record", "-",
            "--record-limit", "2", "--quiet",
        ])
        for _ in 0..<3 { #expect(try await push(announcement.port).output == "200") }
        #expect(process.output.split(separator: "\n").count == 4)
        let page = try await ControlRequest("GET", "/notifications", port: announcement.controlPort)
        #expect(try (page.json["notifications"] as? [Any])?.count == 2)
        #expect(try page.json["overwritten"] as? Int == 1)
        process.send(SIGTERM)
        #expect(try await process.wait() == .exited(0))
    }

    @Test("exits with 1 if it could not record, and reports it")
    func full() async throws {
        try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(at: directory) }
        let (process, announcement) = try await start([
            "--write-certificates", directory.appending(path: "certs").path, "--record", "/dev/full",
        ])
        #expect(announcement.controlPort == nil)
        for _ in 0..<2 { #expect(try await push(announcement.port).output == "200") }
        #expect(process.errors.components(separatedBy: "cannot record to /dev/full").count == 2)
        process.send(SIGTERM)
        #expect(try await process.wait() == .exited(1))
    }

    @Test(
        "refuses contradicting options with the reason",
        arguments: [
            (["--certificate", "server.pem"], "--certificate and --key must be given together"),
            (["--certificate", "a", "--key", "b", "--write-certificates", "c"], "--write-certificates"),
            (["--control-host", "0.0.0.0"], "--control-host"), (["--record-limit", "0"], "--record-limit"),
            (["--record", "/does/not/exist"], "/does/not/exist"), (["--server-name", "a b"], "'a b'"),
            (["--write-certificates", "/dev/null/x"], "/dev/null/x"),
        ])
    func refuses(_ arguments: [String], _ words: String) async throws {
        let result = try await Command.run(try BuiltProgram.path("apns-simulator"), arguments, timeout: 50)
        #expect(result.status != 0)
        #expect(result.errors.contains(words), "\(result.errors)")
    }
}
