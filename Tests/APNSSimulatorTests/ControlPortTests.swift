import APNSSimulator
import Foundation
import HTTPPort
import TestSupport
import Testing

/// A request to the control port, sent by curl.
struct ControlRequest {
    let status: Int
    let text: String

    var json: [String: Any] {
        get throws { try #require(JSONSerialization.jsonObject(with: Data(text.utf8)) as? [String: Any], "\(text)") }
    }

    var error: String? { get throws { try json["error"] as? String } }

    init(_ method: String, _ path: String, _ body: String? = nil, headers: [String] = [], port: Int?) async throws {
        let port = try #require(port)
        let result = try await Command.run(
            "/usr/bin/curl",
            [
                "--silent", "--show-error", "--noproxy", "*", "--max-time", "280", "--request", method, "--write-out",
                "\n%{http_code}", "--header", "content-type: application/json",
            ] + (body.map { ["--data-binary", $0] } ?? []) + headers.flatMap { ["--header", $0] }
                + ["http://127.0.0.1:\(port)\(path)"])
        let end = try #require(result.output.lastIndex(of: "\n"), "\(result.errors)")
        status = Int(result.output[result.output.index(after: end)...]) ?? 0
        text = String(result.output[..<end])
    }
}

@Suite("The control port", .timeLimit(.minutes(5)))
struct ControlPortTests {
    private func withControl(
        rules: [String] = [], recorder: Recorder? = nil,
        _ body: (APNSSimulatorServer, (String, String, String?) async throws -> ControlRequest) async throws -> Void
    ) async throws {
        try await withSimulator(rules: rules) {
            $0.controlPort = 0
            $0.recorder = recorder
        } _: { server in
            try await body(server) { try await ControlRequest($0, $1, $2, port: server.controlPort) }
        }
    }

    private func sequences(_ answer: ControlRequest) throws -> [Int] {
        try #require(try answer.json["notifications"] as? [[String: Any]]).compactMap { $0["sequence"] as? Int }
    }

    @Test("lists received notifications, and clears them on request")
    func notifications() async throws {
        try await withControl(rules: ["prefix=dead,answer=410"]) { server, ask in
            #expect(try sequences(try await ask("GET", "/notifications", nil)) == [])
            _ = try await Push().send(to: server)
            _ = try await Push(token: FaultTests.dead).send(to: server)
            let all = try await ask("GET", "/notifications", nil)
            #expect(all.status == 200)
            #expect(try sequences(all) == [1, 2])
            #expect(try all.json["last"] as? Int == 2)
            let first = try #require((try all.json["notifications"] as? [[String: Any]])?.first)
            let payload = try #require(first["payload"] as? [String: [String: String]])
            #expect(payload == ["aps": ["alert": "x"]])
            #expect(try sequences(try await ask("GET", "/notifications?after=1", nil)) == [2])
            #expect(try sequences(try await ask("GET", "/notifications?limit=1", nil)) == [1])
            #expect(try sequences(try await ask("GET", "/notifications?outcome=refused", nil)) == [2])
            #expect(try sequences(try await ask("GET", "/notifications?outcome=accepted", nil)) == [1])
            let token = FaultTests.dead.uppercased()
            #expect(try sequences(try await ask("GET", "/notifications?token=\(token)&wait=0", nil)) == [2])
            #expect(try await ask("DELETE", "/notifications", nil).json["deleted"] as? Int == 2)
            #expect(try sequences(try await ask("GET", "/notifications", nil)) == [])
        }
    }

    @Test("answers a long poll when the notification arrives, and other requests before that")
    func longPoll() async throws {
        let recorder = Recorder()
        try await withControl(recorder: recorder) { server, ask in
            let port = server.controlPort
            // More than there are threads, so none can block the others.
            let polls = (0..<12).map { _ in
                Task { try await ControlRequest("GET", "/notifications?token=\(anyToken)&wait=250", port: port) }
            }
            try await eventually("all wait") {
                try await ask("GET", "/health", nil).json["waiting"] as? Int == polls.count
            }
            _ = try await Push(token: FaultTests.dead).send(to: server)
            _ = try await Push().send(to: server)
            for poll in polls { #expect(try sequences(try await poll.value) == [2]) }
            let none = try await ask("GET", "/notifications?after=2&wait=0.05", nil)
            #expect(try sequences(none) == [])
            #expect(try none.json["last"] as? Int == 2)
        }
    }

    @Test("ends long polls when the simulator stops")
    func stops() async throws {
        var configuration = SimulatorConfiguration(identity: try SimulatedAuthority().serverIdentity())
        configuration.controlPort = 0
        let server = try await APNSSimulatorServer.start(configuration)
        let port = server.controlPort
        let poll = Task { try await ControlRequest("GET", "/notifications?wait=250", port: port) }
        try await eventually("it waits") {
            try await ControlRequest("GET", "/health", port: port).json["waiting"] as? Int == 1
        }
        try await server.stop()
        #expect(try await poll.value.status == 200)
        #expect(try sequences(try await poll.value) == [])
    }

    @Test("stops although a client has sent only half a request")
    func halfRequest() async throws {
        var configuration = SimulatorConfiguration(identity: try SimulatedAuthority().serverIdentity())
        configuration.controlPort = 0
        let server = try await APNSSimulatorServer.start(configuration)
        let port = try #require(server.controlPort)
        let client = try ChildProcess(
            "/bin/bash",
            ["-c", "exec 3<>/dev/tcp/127.0.0.1/\(port); printf 'PUT /rules HTTP/1.1\\r\\n' >&3; echo; cat <&3"])
        try await eventually("it is connected") { !client.output.isEmpty }
        try await server.stop()
        try await client.wait()
    }

    @Test("returns the account")
    func account() async throws {
        try await withControl { server, ask in
            _ = try await Push().send(to: server)
            let account = try await ask("GET", "/account", nil).json
            #expect(account["accepted"] as? Int == 1 && account["accepted_by_token"] == nil)
            let details = try await ask("GET", "/account?details=true", nil).json
            #expect(details["accepted_by_token"] as? [String: Int] == [anyToken: 1])
        }
    }

    @Test("changes the rules: replaces all, adds one, deletes all")
    func rules() async throws {
        try await withControl(rules: ["prefix=dead, answer=410,times=1"]) { server, ask in
            func rules(_ answer: ControlRequest) throws -> [String]? { try answer.json["rules"] as? [String] }
            #expect(try rules(try await ask("GET", "/rules", nil)) == ["prefix=dead,answer=410,times=1"])
            #expect(try await Push(token: FaultTests.dead).send(to: server).status == 410)
            let added = try await ask("POST", "/rules", #"{"rule":"answer=503"}"#)
            #expect(try rules(added) == ["prefix=dead,answer=410,times=1", "answer=503"])
            // The first rule's count continues, so it no longer matches.
            #expect(try await Push(token: FaultTests.dead).send(to: server).status == 503)
            let replaced = try await ask("PUT", "/rules", #"{"rules":["prefix=dead,answer=429,times=1"]}"#)
            #expect(try rules(replaced) == ["prefix=dead,answer=429,times=1"])
            #expect(server.rules.map(\.text) == ["prefix=dead,answer=429,times=1"])
            #expect(try await Push(token: FaultTests.dead).send(to: server).status == 429)
            #expect(try await Push(token: FaultTests.dead).send(to: server).status == 200)
            let again = try await ask("PUT", "/rules", #"{"rules":["prefix=dead,answer=429,times=1"]}"#)
            #expect(again.status == 200)
            #expect(try await Push(token: FaultTests.dead).send(to: server).status == 429)
            let bad = try await ask("PUT", "/rules", #"{"rules":["answer=410","answer=maybe"]}"#)
            #expect(bad.status == 400)
            #expect(try bad.error?.contains("'answer=maybe': answer: must be a status") == true)
            #expect(try rules(try await ask("GET", "/rules", nil)) == ["prefix=dead,answer=429,times=1"])
            #expect(try rules(try await ask("DELETE", "/rules", nil)) == [])
            #expect(try await Push(token: FaultTests.dead).send(to: server).status == 200)
        }
    }

    @Test("changes the delay of answers")
    func delay() async throws {
        try await withControl { server, ask in
            #expect(try await ask("GET", "/delay", nil).json["delay"] is NSNull)
            let set = try await ask("PUT", "/delay", #"{"delay":"200ms+-1ms"}"#)
            #expect(try set.json["delay"] as? String == "200ms±1ms")
            for push in [Push(), Push { $0.set("apns-topic", nil) }] {
                let start = ContinuousClock.now
                _ = try await push.send(to: server)
                #expect(ContinuousClock.now - start > .milliseconds(150))
            }
            // Replacing the rules keeps the delay.
            _ = try await ask("PUT", "/rules", #"{"rules":[]}"#)
            #expect(try await ask("GET", "/delay", nil).json["delay"] as? String == "200ms±1ms")
            #expect(try await ask("PUT", "/delay", #"{"delay":null}"#).json["delay"] is NSNull)
            #expect(try await ask("PUT", "/delay", #"{"delay":"soon"}"#).status == 400)
            #expect(try await ask("PUT", "/delay", #"{}"#).status == 400)
        }
    }

    @Test("sends GOAWAY to every connection, or closes it abruptly", arguments: ["goaway?reason=Maintenance", "drop"])
    func faults(_ fault: String) async throws {
        try await withControl(rules: ["answer=silence"]) { server, ask in
            async let first = Push().send(to: server)
            async let second = Push().send(to: server)
            try await eventually("both have come") { server.account.requests == 2 }
            let answer = try await ask("POST", "/faults/\(fault)", nil)
            #expect(try answer.json["connections"] as? Int == 2)
            if fault == "drop" {
                // Requests on these connections are never answered: curl reports a lost connection.
                #expect(try await first.exit != 0)
                #expect(try await second.exit != 0)
            }
            try await eventually("the account knows") {
                fault == "drop" ? server.account.drops == 2 : server.account.goAways == 2
            }
            // New connections are served.
            _ = try await ask("DELETE", "/rules", nil)
            #expect(try await Push().send(to: server).status == 200)
            if fault != "drop" {
                try await server.stop(grace: .zero)
                _ = try await (first, second)
            }
        }
    }

    @Test("refuses new connections for a while; repeating that changes nothing")
    func listening() async throws {
        try await withControl { (server, ask) async throws in
            for _ in 0..<2 {
                #expect(try await ask("POST", "/faults/stop-listening", nil).json["listening"] as? Bool == false)
                #expect(try await Push().send(to: server).exit == 7)
                #expect(try await ask("GET", "/health", nil).json["listening"] as? Bool == false)
            }
            for _ in 0..<2 {
                #expect(try await ask("POST", "/faults/start-listening", nil).json["listening"] as? Bool == true)
                #expect(try await Push().send(to: server).status == 200)
            }
            #expect(try await ask("GET", "/health", nil).json["port"] as? Int == server.port)
        }
    }

    @Test(
        "describes an error in a request",
        arguments: [
            ("GET", "/nothing", nil, 404, "there is no GET /nothing"), ("PATCH", "/rules", nil, 404, "PATCH /rules"),
            ("GET", "/notifications?limit=0", nil, 400, "limit must be"),
            ("GET", "/notifications?after=-1", nil, 400, "after must be"),
            ("GET", "/notifications?wait=301", nil, 400, "wait must be"),
            ("GET", "/notifications?wait=nan", nil, 400, "wait must be"),
            ("GET", "/notifications?outcome=lost", nil, 400, "outcome must be"),
            ("GET", "/notifications?colour=red", nil, 400, "colour"),
            ("GET", "/notifications?limit=1&limit=2", nil, 400, "limit is given twice"),
            ("GET", "/account?details=maybe", nil, 400, "details must be"),
            ("PUT", "/rules", "[]", 400, "the body must be JSON such as"),
            ("POST", "/rules", "", 400, "the body must be JSON such as"),
            ("POST", "/rules", #"{"rule":"prefix=dead"}"#, 400, "has no effect"),
            ("POST", "/faults/goaway?reason=a%22b", nil, 400, "reason must be"),
        ] as [(String, String, String?, Int, String)])
    func errors(_ method: String, _ path: String, _ body: String?, status: Int, words: String) async throws {
        try await withControl { _, ask in
            let answer = try await ask(method, path, body)
            #expect(answer.status == status)
            #expect(try answer.error?.contains(words) == true, "\(answer.text)")
        }
    }

    @Test(
        "refuses requests from web pages without any effect",
        arguments: [
            ["Host: evil.example"], ["Host: evil.example:8444"], ["Origin: http://evil.example"], ["Origin: null"],
            ["Host: evil.example", "Origin: http://evil.example"],
        ])
    func webPages(headers: [String]) async throws {
        try await withControl { server, _ in
            let rule = #"{"rule":"answer=410"}"#
            let answer = try await ControlRequest("POST", "/rules", rule, headers: headers, port: server.controlPort)
            #expect(answer.status == 403)
            #expect(try answer.error?.contains("evil.example") == true || headers == ["Origin: null"])
            #expect(server.rules.isEmpty)
            let read = try await ControlRequest("GET", "/notifications", headers: headers, port: server.controlPort)
            #expect(read.status == 403 && !read.text.contains("notifications"))
        }
    }

    @Test("accepts requests to localhost, and those of its own pages")
    func ownNames() async throws {
        try await withControl { server, _ in
            let port = try #require(server.controlPort)
            let origin = "Origin: http://127.0.0.1:\(port)"
            for headers in [["Host: localhost:\(port)"], ["Host: [::1]:\(port)"], ["Host:"], [origin]] {
                let answer = try await ControlRequest("GET", "/rules", headers: headers, port: port)
                #expect(answer.status == 200, "\(headers): \(answer.text)")
            }
        }
    }

    @Test("refuses an endless body, and lists its routes")
    func limits() async throws {
        try await withControl { server, ask in
            let big = FileManager.default.temporaryDirectory.appending(path: "big-\(UUID().uuidString)")
            try Data(repeating: 0x20, count: 1 << 21).write(to: big)
            defer { try? FileManager.default.removeItem(at: big) }
            let answer = try await ask("PUT", "/rules", "@\(big.path)")
            #expect(answer.status == 413)
            #expect(try answer.error?.contains("larger than 1048576 bytes") == true)
            let routes = try #require(try await ask("GET", "/", nil).json["routes"] as? [String])
            #expect(routes.contains("GET /health") && routes.contains("DELETE /notifications"))
        }
    }

    @Test("reports a port that is in use, and leaves nothing open")
    func taken() async throws {
        try await withControl { server, _ in
            var configuration = SimulatorConfiguration(identity: try SimulatedAuthority().serverIdentity())
            let port = try #require(server.controlPort)
            configuration.controlPort = port
            let failure = await #expect(throws: HTTPPortFailure.self) {
                try await APNSSimulatorServer.start(configuration)
            }
            #expect(failure?.description.contains("127.0.0.1:\(port)") == true)
        }
    }
}
