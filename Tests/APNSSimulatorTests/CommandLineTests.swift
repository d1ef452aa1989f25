import Foundation
import TestSupport
import Testing

@Suite("The apns-simulator command")
struct CommandLineTests {
    @Test("prints its port, writes its account on request, and exits with 0 on SIGTERM", .timeLimit(.minutes(1)))
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
        let line = try #require(JSONSerialization.jsonObject(with: Data(process.output.utf8)) as? [String: Int])
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
        "refuses invalid options with the reason",
        arguments: [
            (["--rule", "answer=maybe"], "answer=maybe"), (["--delay", "soon"], "--delay"),
            (["--provider-key", "A:B:/does/not/exist"], "/does/not/exist"),
            (["--provider-key", "A"], "KEYID:TEAMID:FILE"),
            (["--initial-streams", "0"], "--initial-streams"), (["--set", "error-limit=none"], "error-limit"),
            (["--device", "topic=a"], "token: is missing"), (["--devices", "/does/not/exist"], "/does/not/exist"),
            (["--account-limit", "0"], "--account-limit"), (["--gateway-rule", "answer=8"], "--gateway-port"),
            (["--gateway-port", "0", "--gateway-rule", "answer=oops"], "answer=oops"),
            (["--gateway-port", "0", "--gateway-payload-limit", "0"], "--gateway-payload-limit"),
            (["--feedback-fault", "hang=true"], "--feedback-port"),
            (["--feedback-port", "0", "--feedback-fault", "hang=9"], "hang=9"),
            (["--feedback-port", "0", "--feedback", "/does/not/exist"], "/does/not/exist"),
            (["--feedback-port", "0", "--feedback", "/etc/passwd"], "line 1"),
            (["--gateway-port", "0", "--refuse-handshake"], "--client-ca"),
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

    @Test("also serves the gateway and the feedback service, and its account includes both", .timeLimit(.minutes(1)))
    func binary() async throws {
        let file = FileManager.default.temporaryDirectory.appending(path: "feedback-\(UUID().uuidString)")
        try Data("\(anyToken) 1700000000\n".utf8).write(to: file)
        defer { try? FileManager.default.removeItem(at: file) }
        let simulator = try await SimulatorProcess(
            gateway: ["prefix=dd,answer=feedback", "prefix=ee,answer=InvalidToken"], feedback: ["pieces=5"],
            options: ["--gateway-id-member", "id", "--feedback", file.path, "--gateway-payload-limit", "40"])
        let client = try await BinaryClient.connect(simulator.gatewayPort)
        let payload = Array(#"{"aps":{"alert":"é🚀"},"id":"j1"}"#.utf8)
        try await client.send(
            GatewayBytes.frame(1, token: GatewayBytes.token(0xDD), payload: payload, expiration: 5)
                + GatewayBytes.simple(payload: payload) + GatewayBytes.enhanced(3, token: GatewayBytes.token(0xEE)))
        let ending = try await client.ending()
        #expect(ending.bytes == GatewayBytes.packet(8, 3))
        let fed = try await BinaryClient.connect(simulator.feedbackPort).ending().bytes
        #expect(fed.count == 76 && fed.prefix(6) == GatewayBytes.big(UInt32(1_700_000_000)) + [0, 32])

        let long = try await BinaryClient.connect(simulator.gatewayPort)
        try await long.send(GatewayBytes.frame(4, payload: payload + Array(repeating: 0x20, count: 9)))
        let refused = try await long.ending()
        #expect(refused.bytes == GatewayBytes.packet(7, 4))

        let account = try await simulator.stop()
        #expect(account.accepted == 2 && account.acceptedByGateway == 2)
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
        let result = try await Command.run(try BuiltProgram.path("apns-simulator"), ["--help"], timeout: 20)
        for words in ["GATEWAY", "FEEDBACK", "--gateway-rule <rule>", "at=connect", "cut=50", "--feedback-fault"] {
            #expect(result.output.contains(words))
        }
    }
}
