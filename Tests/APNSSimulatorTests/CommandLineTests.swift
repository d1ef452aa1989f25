import Foundation
import TestSupport
import Testing

/// Each test runs the command in a process.
@Suite("The apns-simulator command", .timeLimit(.minutes(10)))
struct CommandLineTests {
    private struct Announcement: Decodable {
        let port, pid: Int
        let controlPort: Int?
    }

    /// Holds the files of one test.
    private let folder: OpenSSLWorkshop

    init() throws { folder = try OpenSSLWorkshop() }

    private static func identity() throws -> [String] {
        [
            "--certificate", try TestCertificates.path("server.pem"), "--key",
            try TestCertificates.path("server-key.pem"),
        ]
    }

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

    /// Sends a notification with the client certificate that the simulator has written.
    /// - Returns: the body and the status of the answer.
    private func push(_ port: Int, host: String = "127.0.0.1", token: String = anyToken) async throws -> String {
        try await Command.run(
            "/usr/bin/curl",
            [
                "--silent", "--show-error", "--noproxy", "*", "--http2", "--cacert", folder.path("certs/ca.pem"),
                "--cert", folder.path("certs/client.pem"), "--key", folder.path("certs/client-key.pem"), "--data",
                #"{"aps":{"alert":"x"}}"#, "--write-out", "%{http_code}", "--resolve",
                "simulator.test:\(port):127.0.0.1", "https://\(host):\(port)/3/device/\(token)",
            ]
        ).output
    }

    private func lines(_ file: String) throws -> [Substring] {
        String(decoding: try folder.read(file), as: UTF8.self).split(separator: "\n")
    }

    @Test("prints its port, writes its account on request, and exits with 0 on SIGTERM")
    func lives() async throws {
        let (process, announcement) = try await start(
            try Self.identity() + [
                "--account", folder.path("account.json"), "--port-file", folder.path("port"), "--quiet", "--rule",
                "prefix=dead,answer=410",
            ])
        #expect(announcement.pid == Int(process.processIdentifier))
        #expect(process.output.split(separator: "\n").count == 1)
        #expect(String(decoding: try folder.read("port"), as: UTF8.self) == "\(announcement.port)\n")
        let answer = try await Command.run(
            "/usr/bin/curl",
            [
                "--silent", "--http2", "--cacert", try TestCertificates.path("ca.pem"), "--data", "{}",
                "--header", "authorization: bearer " + TestTokens.unsigned(), "--header", "apns-topic: com.example.app",
                "https://127.0.0.1:\(announcement.port)/3/device/\(FaultTests.dead)",
            ])
        #expect(answer.output.contains("Unregistered"))
        let account = folder.directory.appending(path: "account.json")
        process.send(SIGUSR1)
        try await eventually("the account") {
            (try? JSONSerialization.jsonObject(with: Data(contentsOf: account))) != nil
        }
        #expect(try String(contentsOf: account, encoding: .utf8).contains("410 Unregistered"))
        try FileManager.default.removeItem(at: account)
        process.send(SIGTERM)
        #expect(try await process.wait() == .exited(0))
        #expect(try String(contentsOf: account, encoding: .utf8).contains("\"requests\" : 1"))
    }

    @Test("makes its own certificates, records requests, and loses nothing on SIGTERM")
    func ownCertificates() async throws {
        let (process, announcement) = try await start([
            "--write-certificates", folder.path("certs"), "--server-name", "simulator.test", "--control-port", "0",
            "--record", folder.path("record"), "--rule", "prefix=dead,answer=410",
        ])
        for host in ["127.0.0.1", "localhost", "simulator.test"] {
            #expect(try await push(announcement.port, host: host) == "200", "\(host)")
        }
        #expect(try await push(announcement.port, token: FaultTests.dead).hasSuffix("410"))
        // Lines are written before the answer is sent, for programs that follow the file.
        let last = try lines("record").last
        #expect(last?.contains(#""outcome":{"status":410,"reason":"Unregistered"}"#) == true)
        let page = try await ControlRequest("GET", "/notifications", port: announcement.controlPort)
        #expect(try lines("record").count == 4 && page.objects("notifications").count == 4)
        for (host, status) in [("simulator.test", 200), ("evil.example", 403)] {
            let answer = try await ControlRequest(
                "GET", "/rules", headers: ["Host: \(host)"], port: announcement.controlPort)
            #expect(answer.status == status, "\(host)")
        }
        process.send(SIGTERM)
        #expect(try await process.wait() == .exited(0))
        #expect(try lines("record").count == 4)
    }

    @Test("keeps at most the configured number, and records to standard output after its first line")
    func standardOutput() async throws {
        let (process, announcement) = try await start([
            "--write-certificates", folder.path("certs"), "--control-port", "0", "--record", "-", "--record-limit",
            "2", "--quiet",
        ])
        for _ in 0..<3 { #expect(try await push(announcement.port) == "200") }
        #expect(process.output.split(separator: "\n").count == 4)
        let page = try await ControlRequest("GET", "/notifications", port: announcement.controlPort)
        #expect(try page.objects("notifications").count == 2 && page.number("overwritten") == 1)
        process.send(SIGTERM)
        #expect(try await process.wait() == .exited(0))
    }

    @Test("exits with 1 if it could not record, and reports it")
    func full() async throws {
        let (process, announcement) = try await start([
            "--write-certificates", folder.path("certs"), "--record", "/dev/full",
        ])
        #expect(announcement.controlPort == nil)
        for _ in 0..<2 { #expect(try await push(announcement.port) == "200") }
        #expect(process.errors.components(separatedBy: "cannot record to /dev/full").count == 2)
        process.send(SIGTERM)
        #expect(try await process.wait() == .exited(1))
    }

    @Test(
        "refuses invalid options with the reason",
        arguments: [
            (true, ["--rule", "answer=maybe"], "answer=maybe"), (true, ["--delay", "soon"], "--delay"),
            (true, ["--provider-key", "A:B:/does/not/exist"], "/does/not/exist"),
            (true, ["--provider-key", "A"], "KEYID:TEAMID:FILE"),
            (true, ["--initial-streams", "0"], "--initial-streams"),
            (true, ["--set", "error-limit=none"], "error-limit"), (true, ["--device", "topic=a"], "token: is missing"),
            (true, ["--devices", "/does/not/exist"], "/does/not/exist"),
            (true, ["--account-limit", "0"], "--account-limit"),
            (true, ["--gateway-rule", "answer=8"], "--gateway-port"),
            (true, ["--gateway-port", "0", "--gateway-rule", "answer=oops"], "answer=oops"),
            (true, ["--gateway-port", "0", "--gateway-payload-limit", "0"], "--gateway-payload-limit"),
            (true, ["--feedback-fault", "hang=true"], "--feedback-port"),
            (true, ["--feedback-port", "0", "--feedback-fault", "hang=9"], "hang=9"),
            (true, ["--feedback-port", "0", "--feedback", "/does/not/exist"], "/does/not/exist"),
            (true, ["--feedback-port", "0", "--feedback", "/etc/passwd"], "line 1"),
            (true, ["--gateway-port", "0", "--refuse-handshake"], "--client-ca"),
            (false, ["--certificate", "server.pem"], "--certificate and --key must be given together"),
            (false, ["--certificate", "a", "--key", "b", "--write-certificates", "c"], "--write-certificates"),
            (false, ["--control-host", "0.0.0.0"], "--control-host"),
            (false, ["--record-limit", "0"], "--record-limit"),
            (false, ["--record", "/does/not/exist"], "/does/not/exist"), (false, ["--server-name", "a b"], "'a b'"),
            (false, ["--write-certificates", "/dev/null/x"], "/dev/null/x"),
        ])
    func refuses(_ hasIdentity: Bool, _ arguments: [String], _ words: String) async throws {
        let result = try await Command.run(
            try BuiltProgram.path("apns-simulator"), (hasIdentity ? try Self.identity() : []) + arguments)
        #expect(result.status != 0)
        #expect(result.errors.contains(words), "\(result.errors)")
    }

    @Test("also serves the gateway and the feedback service, and its account includes both")
    func binary() async throws {
        try folder.write("\(anyToken) 1700000000\n".utf8, to: "feedback")
        let simulator = try await SimulatorProcess(
            gateway: ["prefix=dd,answer=feedback", "prefix=ee,answer=InvalidToken"], feedback: ["pieces=5"],
            options: [
                "--gateway-id-member", "id", "--feedback", folder.path("feedback"), "--gateway-payload-limit", "40",
            ])
        let client = try await BinaryClient.connect(simulator.gatewayPort)
        let payload = Array(#"{"aps":{"alert":"é🚀"},"id":"j1"}"#.utf8)
        try await client.send(
            GatewayBytes.frame(1, token: GatewayBytes.token(0xDD), payload: payload, expiration: 5)
                + GatewayBytes.simple(payload: payload) + GatewayBytes.enhanced(3, token: GatewayBytes.token(0xEE)))
        #expect(try await client.ending().bytes == GatewayBytes.packet(8, 3))
        let fed = try await BinaryClient.connect(simulator.feedbackPort).ending().bytes
        #expect(fed.count == 76 && fed.prefix(6) == GatewayBytes.big(UInt32(1_700_000_000)) + [0, 32])

        let long = try await BinaryClient.connect(simulator.gatewayPort)
        try await long.send(GatewayBytes.frame(4, payload: payload + Array(repeating: 0x20, count: 9)))
        #expect(try await long.ending().bytes == GatewayBytes.packet(7, 4))

        let account = try await simulator.stop()
        #expect(account.accepted == 2 && account.gateway.accepted == 2)
        #expect(account.gateway.frames == ["0": 1, "1": 1, "2": 2])
        #expect(account.gateway.refused == ["7 InvalidPayloadSize": 1, "8 InvalidToken": 1])
        #expect(account.gateway.duplicates == 1 && account.gatewayAcceptedByID == ["j1": 2])
        #expect(account.gatewayAccepted.map(\.identifier) == [1, nil])
        #expect(account.gatewayAccepted.first?.payload == String(decoding: payload, as: UTF8.self))
        #expect(account.gatewayAccepted.first?.expiration == 5 && account.gatewayAccepted.first?.priority == 10)
        #expect(account.acceptedByToken[String(repeating: "dd", count: 32)] == 1)
        #expect(account.feedback.served == 2 && account.feedback.connections == 1)
    }

    @Test("describes its gateway and its feedback service in its help")
    func help() async throws {
        let result = try await Command.run(try BuiltProgram.path("apns-simulator"), ["--help"])
        for words in ["GATEWAY", "FEEDBACK", "--gateway-rule <rule>", "at=connect", "cut=50", "--feedback-fault"] {
            #expect(result.output.contains(words), "\(words)")
        }
    }
}
