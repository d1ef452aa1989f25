import Foundation
import HTTPPort
import TestSupport
import Testing

@testable import APNSSimulator

struct ControlRequest {
    let status: Int
    let text: String

    var json: [String: Any] {
        get throws { try #require(JSONSerialization.jsonObject(with: Data(text.utf8)) as? [String: Any], "\(text)") }
    }

    var error: String? { get throws { try json["error"] as? String } }

    var sequences: [Int] { get throws { try objects("notifications").compactMap { $0["sequence"] as? Int } } }

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

    func number(_ member: String) throws -> Int? { try json[member] as? Int }
    func texts(_ member: String) throws -> [String]? { try json[member] as? [String] }
    func objects(_ member: String) throws -> [[String: Any]] { try #require(try json[member] as? [[String: Any]]) }
}

extension APNSSimulatorServer {
    func ask(
        _ method: String, _ path: String, _ body: String? = nil, headers: [String] = []
    ) async throws -> ControlRequest {
        try await ControlRequest(method, path, body, headers: headers, port: controlPort)
    }
}

@Suite("The control port", .timeLimit(.minutes(10)))
struct ControlPortTests {
    @Test("lists received notifications, and clears them on request; returns the account")
    func notifications() async throws {
        try await withSimulator(rules: ["prefix=dead,answer=410"], hasControlPort: true) { server in
            #expect(try await server.ask("GET", "/notifications").sequences == [])
            for token in [anyToken, FaultTests.dead] { _ = try await Push(token: token).send(to: server) }
            let all = try await server.ask("GET", "/notifications")
            #expect(try all.status == 200 && all.sequences == [1, 2] && all.number("last") == 2)
            let payload = try all.objects("notifications").first?["payload"] as? [String: [String: String]]
            #expect(payload == ["aps": ["alert": "x"]])
            for (query, sequence) in [
                ("after=1", 2), ("limit=1", 1), ("outcome=refused", 2), ("outcome=accepted", 1),
                ("token=\(FaultTests.dead.uppercased())&wait=0", 2),
            ] {
                #expect(try await server.ask("GET", "/notifications?\(query)").sequences == [sequence], "\(query)")
            }
            let account = try await server.ask("GET", "/account").json
            #expect(account["accepted"] as? Int == 1 && account["accepted_by_token"] == nil)
            let details = try await server.ask("GET", "/account?details=true").json
            #expect(details["accepted_by_token"] as? [String: Int] == [anyToken: 1])
            #expect(try await server.ask("DELETE", "/notifications").number("deleted") == 2)
            #expect(try await server.ask("GET", "/notifications").sequences == [])
        }
    }

    @Test("answers a long poll when the notification arrives, and other requests before that")
    func longPoll() async throws {
        try await withSimulator(recorder: Recorder(), hasControlPort: true) { server in
            // There are more requests than threads, so they all end only if a waiting request does not block a thread.
            let polls = (0..<12).map { _ in
                Task { try await server.ask("GET", "/notifications?token=\(anyToken)&wait=250") }
            }
            try await eventually("all wait") {
                try await server.ask("GET", "/health").number("waiting") == polls.count
            }
            for token in [FaultTests.dead, anyToken] { _ = try await Push(token: token).send(to: server) }
            for poll in polls { #expect(try await poll.value.sequences == [2]) }
            let none = try await server.ask("GET", "/notifications?after=2&wait=0.05")
            #expect(try none.sequences == [] && none.number("last") == 2)
        }
    }

    @Test("ends long polls when the simulator stops, and does not wait for the second half of a request")
    func stops() async throws {
        var configuration = SimulatorConfiguration(identity: try SimulatedAuthority().serverIdentity())
        configuration.controlPort = 0
        let server = try await APNSSimulatorServer.start(configuration)
        let port = try #require(server.controlPort)
        let poll = Task { try await server.ask("GET", "/notifications?wait=250") }
        try await eventually("it waits") { try await server.ask("GET", "/health").number("waiting") == 1 }
        let half = try ChildProcess(
            "/bin/bash",
            ["-c", "exec 3<>/dev/tcp/127.0.0.1/\(port); printf 'PUT /rules HTTP/1.1\\r\\n' >&3; echo; cat <&3"])
        try await eventually("it is connected") { !half.output.isEmpty }
        try await server.stop()
        let answer = try await poll.value
        #expect(try answer.status == 200 && answer.sequences == [])
        try await half.wait()
    }

    @Test("changes the rules: replaces all, adds one, deletes all")
    func rules() async throws {
        let (first, second) = ("prefix=dead,answer=410,times=1", "prefix=dead,answer=429,times=1")
        try await withSimulator(rules: ["prefix=dead, answer=410,times=1"], hasControlPort: true) { server in
            func status() async throws -> Int { try await Push(token: FaultTests.dead).send(to: server).status }
            #expect(try await server.ask("GET", "/rules").texts("rules") == [first])
            #expect(try await status() == 410)
            let added = try await server.ask("POST", "/rules", #"{"rule":"answer=503"}"#)
            #expect(try added.texts("rules") == [first, "answer=503"])
            // The first rule has already applied once. Its count continues, so it does not apply again.
            #expect(try await status() == 503)
            for _ in 0..<2 {
                let replaced = try await server.ask("PUT", "/rules", #"{"rules":["\#(second)"]}"#)
                #expect(try replaced.status == 200 && replaced.texts("rules") == [second])
                #expect(server.service.rules.all.map(\.text) == [second])
                #expect(try await status() == 429)
            }
            #expect(try await status() == 200)
            let bad = try await server.ask("PUT", "/rules", #"{"rules":["answer=410","answer=maybe"]}"#)
            #expect(bad.status == 400)
            #expect(try bad.error?.contains("'answer=maybe': answer: must be a status") == true)
            #expect(try await server.ask("GET", "/rules").texts("rules") == [second])
            #expect(try await server.ask("DELETE", "/rules").texts("rules") == [])
            #expect(try await status() == 200)
        }
    }

    @Test("changes the delay of answers")
    func delay() async throws {
        try await withSimulator(hasControlPort: true) { server in
            #expect(try await server.ask("GET", "/delay").json["delay"] is NSNull)
            let set = try await server.ask("PUT", "/delay", #"{"delay":"200ms+-1ms"}"#)
            #expect(try set.json["delay"] as? String == "200ms±1ms")
            for push in [Push(), Push { $0.set("apns-topic", nil) }] {
                let start = ContinuousClock.now
                _ = try await push.send(to: server)
                #expect(ContinuousClock.now - start > .milliseconds(150))
            }
            // New rules do not change the delay.
            _ = try await server.ask("PUT", "/rules", #"{"rules":[]}"#)
            #expect(try await server.ask("GET", "/delay").json["delay"] as? String == "200ms±1ms")
            #expect(try await server.ask("PUT", "/delay", #"{"delay":null}"#).json["delay"] is NSNull)
            for body in [#"{"delay":"soon"}"#, "{}"] {
                #expect(try await server.ask("PUT", "/delay", body).status == 400, "\(body)")
            }
        }
    }

    @Test("sends GOAWAY to every connection, or closes it abruptly", arguments: ["goaway?reason=Maintenance", "drop"])
    func faults(_ fault: String) async throws {
        try await withSimulator(rules: ["answer=silence"], hasControlPort: true) { server in
            async let first = Push().send(to: server)
            async let second = Push().send(to: server)
            try await eventually("both have come") { server.account.requests == 2 }
            #expect(try await server.ask("POST", "/faults/\(fault)").number("connections") == 2)
            if fault == "drop" {
                // Requests on these connections are never answered: curl reports a lost connection.
                #expect(try await first.exit != 0)
                #expect(try await second.exit != 0)
            }
            try await eventually("the account knows") {
                fault == "drop" ? server.account.drops == 2 : server.account.goAways == 2
            }
            // New connections are served.
            _ = try await server.ask("DELETE", "/rules")
            #expect(try await Push().send(to: server).status == 200)
            if fault != "drop" {
                try await server.stop(grace: .zero)
                _ = try await (first, second)
            }
        }
    }

    @Test("refuses new connections for a while; repeating that changes nothing")
    func listening() async throws {
        try await withSimulator(hasControlPort: true) { (server) async throws in
            for _ in 0..<2 {
                #expect(try await server.ask("POST", "/faults/stop-listening").json["listening"] as? Bool == false)
                #expect(try await Push().send(to: server).exit == 7)
                #expect(try await server.ask("GET", "/health").json["listening"] as? Bool == false)
            }
            for _ in 0..<2 {
                #expect(try await server.ask("POST", "/faults/start-listening").json["listening"] as? Bool == true)
                #expect(try await Push().send(to: server).status == 200)
            }
            #expect(try await server.ask("GET", "/health").number("port") == server.port)
        }
    }

    @Test("describes an error in a request")
    func errors() async throws {
        let big = try OpenSSLWorkshop()
        try big.write(repeatElement(0x20, count: 1 << 21), to: "body")
        try await withSimulator(hasControlPort: true) { server in
            for (method, path, body, status, words) in [
                ("GET", "/nothing", nil, 404, "there is no GET /nothing"),
                ("PATCH", "/rules", nil, 404, "PATCH /rules"),
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
                ("PUT", "/rules", "@\(big.path("body"))", 413, "larger than 1048576 bytes"),
            ] as [(String, String, String?, Int, String)] {
                let answer = try await server.ask(method, path, body)
                #expect(answer.status == status, "\(method) \(path)")
                #expect(try answer.error?.contains(words) == true, "\(method) \(path): \(answer.text)")
            }
            let routes = try #require(try await server.ask("GET", "/").texts("routes"))
            #expect(routes.contains("GET /health") && routes.contains("DELETE /notifications"))
        }
    }

    @Test("refuses requests from web pages without any effect, and accepts its own names and pages")
    func webPages() async throws {
        try await withSimulator(hasControlPort: true) { server in
            for headers in [
                ["Host: evil.example"], ["Host: evil.example:8444"], ["Origin: http://evil.example"], ["Origin: null"],
                ["Host: evil.example", "Origin: http://evil.example"],
            ] {
                let answer = try await server.ask("POST", "/rules", #"{"rule":"answer=410"}"#, headers: headers)
                #expect(answer.status == 403, "\(headers)")
                #expect(try answer.error?.contains("evil.example") == true || headers == ["Origin: null"])
                #expect(server.service.rules.all.isEmpty, "\(headers)")
                let read = try await server.ask("GET", "/notifications", headers: headers)
                #expect(read.status == 403 && !read.text.contains("notifications"), "\(headers)")
            }
            let port = try #require(server.controlPort)
            for header in [
                "Host: localhost:\(port)", "Host: [::1]:\(port)", "Host:", "Origin: http://127.0.0.1:\(port)",
            ] {
                let answer = try await server.ask("GET", "/rules", headers: [header])
                #expect(answer.status == 200, "\(header): \(answer.text)")
            }
        }
    }

    @Test("reports a port that is in use, and leaves nothing open")
    func taken() async throws {
        try await withSimulator(hasControlPort: true) { server in
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
