import Foundation
import Synchronization
import TestSupport
import Testing

@testable import APNSSimulator

@Suite("The inbox", .timeLimit(.minutes(10)))
struct InboxTests {
    private static let browser = "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
    private static let other = String(repeating: "f", count: 64)

    /// Sends a request as a browser does.
    private func ask(
        _ path: String, _ server: APNSSimulatorServer, form: [String: String]? = nil, headers: [String] = [browser]
    ) async throws -> Push.Answer {
        let port = try #require(server.controlPort)
        let fields = (form ?? [:]).flatMap { ["--data-urlencode", "\($0.key)=\($0.value)"] }
        let result = try await Command.run(
            "/usr/bin/curl",
            ["--silent", "--show-error", "--noproxy", "*", "--include", "--max-time", "60"]
                + (form == nil ? [] : ["--request", "POST"]) + headers.flatMap { ["--header", $0] } + fields
                + ["http://127.0.0.1:\(port)\(path)"])
        let answer = Push.Answer(result.output.replacing("\r\n", with: "\n"), exit: result.status)
        #expect(answer.status > 0, "\(result.errors)")
        return answer
    }

    private func press(
        _ answer: String, token: String = anyToken, transport: String = "http2", _ server: APNSSimulatorServer
    ) async throws {
        let form = ["token": token, "transport": transport, "answer": answer]
        let page = try await ask("/inbox/next?token=\(token)", server, form: form)
        #expect(page.status == 303 && page.headers["location"]?.hasPrefix("/?token=\(token)") == true, "\(page)")
    }

    @Test(
        "is served to browsers; programs get the list of routes",
        arguments: [
            (browser, true), ("Accept: text/html;q=0, */*", false), ("Accept: */*", false), ("Accept:", false),
            ("Accept: application/json", false),
        ])
    func negotiation(accept: String, isPage: Bool) async throws {
        try await withSimulator(hasControlPort: true) { server in
            let page = try await ask("/", server, headers: [accept])
            #expect(page.status == 200)
            let type = isPage ? "text/html; charset=utf-8" : "application/json"
            #expect(page.headers["content-type"]?.hasPrefix(type) == true, "\(page.headers)")
            #expect(page.body.hasPrefix(isPage ? "<!doctype html>" : #"{"routes":["GET /health","#))
            #expect(!page.body.contains("/inbox/") || isPage)
            guard isPage else { return }
            for (name, value) in [
                ("content-security-policy", "default-src 'none'; script-src 'self'"), ("cache-control", "no-store"),
                ("x-content-type-options", "nosniff"), ("vary", "Accept"),
            ] {
                #expect(page.headers[name]?.hasPrefix(value) == true, "\(name): \(page.headers)")
            }
            for asset in page.body.matches(of: #/(?:href|src)="(/assets/[^"]+)"/#) {
                #expect(try await ask(String(asset.1), server).status == 200)
            }
            #expect(try await ask("/assets/x.nothing", server).status == 404)
            for part in [
                "Nothing was received yet.", "apns-worker enqueue --token", "--endpoint localhost:\(server.port)",
                "data-copy",
            ] { #expect(page.body.contains(part), "\(part)") }
        }
    }

    @Test("shows each push as text, whatever its contents, with its headers, payload, answer and attempts")
    func hostile() async throws {
        try await withSimulator(rules: ["prefix=01,answer=503,times=1", "prefix=01,delay=20ms"], hasControlPort: true) {
            server in
            let push = Push {
                $0.body =
                    #"{"aps":{"alert":{"title":"<script>alert(1)</script>","body":"a\u202eb"},"badge":3},"x":1.50}"#
                $0.set("apns-collapse-id", "<img src=x>")
            }
            #expect(try await push.send(to: server).status == 503)
            #expect(try await push.send(to: server).status == 200)
            let list = try await ask("/", server).body
            #expect(!list.contains("<script>alert") && list.contains("&lt;script&gt;alert(1)&lt;/script&gt;"))
            #expect(
                list.contains("a⟨U+202E⟩b") && list.contains("503 ServiceUnavailable") && list.contains("attempt 2"))
            let (newer, older) = (list.range(of: "No. 2"), list.range(of: "No. 1"))
            #expect(try #require(newer).lowerBound < #require(older).lowerBound)
            let page = try await ask("/inbox/2", server).body
            #expect(!page.contains("<img") && page.contains("&lt;img src=x&gt;"))
            for part in [
                "<code>apns-topic</code>", "&quot;x&quot;: 1.50", "after 20 ms", anyID.lowercased(), "/inbox/1\"",
                "<b>this one</b>", "class=\"badge\">3<",
            ] { #expect(page.lowercased().contains(part.lowercased()), "\(part)") }
            for path in ["/inbox/3", "/inbox/x"] { #expect(try await ask(path, server).status == 404) }
        }
    }

    @Test("shows requests that were refused, with malformed headers")
    func refused() async throws {
        try await withSimulator(hasControlPort: true) { server in
            _ = try await Push {
                $0.set("apns-priority", "<b>")
                $0.body = "[1,"
            }.send(to: server)
            let page = try await ask("/inbox/1", server).body
            #expect(page.contains("malformed") && page.contains("&lt;b&gt;") && page.contains("400 "))
            #expect(page.contains("not valid JSON") && page.contains("[1,"))
        }
    }

    @Test("searches by token, text, answer and push type, and pages through the rest")
    func search() async throws {
        try await withSimulator(rules: ["prefix=ff,answer=410"], hasControlPort: true) { server in
            let recorder = try #require(server.recorder)
            for number in 1...120 {
                var notification = received(number, token: number % 2 == 0 ? anyToken : Self.other)
                notification.payload = Array(#"{"aps":{"alert":"Push Nr \#(number) Gr\u00fc\u00dfe"}}"#.utf8)
                notification.payloadSize = notification.payload.count
                notification.pushType = number % 3 == 0 ? "background" : "alert"
                recorder.record(notification)
            }
            func numbers(_ query: String) async throws -> [Int] {
                try await ask("/?\(query)", server).body.matches(of: #/<li id="push-(\d+)"/#).compactMap { Int($0.1) }
            }
            for (query, found) in [
                ("", Array((71...120).reversed())), ("before=71", Array((21...70).reversed())),
                ("before=21", Array((1...20).reversed())), ("token=ABCDEF0123&text=nr+12", [120, 12]),
                ("text=nr%2012%20gr%C3%BC%C3%9Fe", [12]), ("type=background&before=10", [9, 6, 3]),
                ("answer=410", []), ("answer=refused", []), ("token=zz", []),
                ("answer=200&token=ff&before=4", [3, 1]),
            ] {
                #expect(try await numbers(query) == found, "\(query)")
            }
            #expect(try await ask("/", server).body.contains("href=\"/?before=71\""))
            #expect(!(try await ask("/?before=21", server).body.contains("Older")))
            for query in ["before=x", "token=%FF", "a=b&a=c", "before=-1", "%", "token"] {
                #expect(try await ask("/?\(query)", server).status == 200, "\(query)")
            }
            #expect(try await ask("/inbox/clear", server, form: [:]).status == 303)
            #expect(try await numbers("") == [])
        }
    }

    @Test("shows refused pushes as not shown, has views, exports a push, and deletes one")
    func views() async throws {
        try await withSimulator(rules: ["prefix=01,answer=410"], hasControlPort: true) { server in
            #expect(try await Push().send(to: server).status == 410)
            #expect(
                try await Push(token: Self.other) { $0.body = #"{"aps":{"badge":4}}"# }.send(to: server).status == 200)
            // The preview shows the newest push, or the push that is opened.
            let list = try await ask("/", server).body
            #expect(!list.contains("not shown: 410 Unregistered"))
            #expect(try await ask("/?open=1", server).body.contains("not shown: 410 Unregistered"))
            #expect(list.contains("?answer=410") && list.contains("?answer=200") && list.contains("are kept"))
            let devices = try await ask("/?view=devices", server).body
            #expect(devices.contains("badge <b>4</b>") && devices.contains("<b>1 refused</b>"))
            #expect(try await ask("/?view=activities", server).body.contains("No Live Activity was received yet."))
            #expect(try await ask("/inbox/1", server).body.contains("apns-worker results --token \(anyToken)"))
            server.setDashboard("http://localhost:8080/push/")
            let page = try await ask("/inbox/1", server).body
            #expect(page.contains("href=\"http://localhost:8080/push/devices/\(anyToken)\""))
            #expect(page.contains("rel=\"prev\" href=\"/inbox/2\"") && !page.contains("rel=\"next\""))
            let fixture = try await ask("/inbox/1/fixture", server)
            #expect(fixture.headers["content-disposition"] == "attachment; filename=\"push-1.json\"")
            #expect(fixture.body.contains("\"reason\":\"Unregistered\""))
            #expect(try await ask("/inbox/9/fixture", server).status == 404)
            let deleted = try await ask("/inbox/delete?answer=410", server, form: ["sequence": "1"])
            #expect(deleted.status == 303 && deleted.headers["location"] == "/?answer=410")
            #expect(try await ask("/inbox/1", server).status == 404)
            #expect(try await ask("/inbox/2", server).status == 200)
            #expect(try await ask("/inbox/delete", server, form: ["sequence": "x"]).status == 400)
        }
    }

    @Test("a button sets the next answer for one token, once", arguments: [410, 429, 503])
    func nextAnswer(status: Int) async throws {
        try await withSimulator(hasControlPort: true) { server in
            try await press("\(status)", server)
            #expect(server.service.rules.all.map(\.text) == ["prefix=\(anyToken),times=1,answer=\(status)"])
            #expect(try await ask("/", server).body.contains("times=1,answer=\(status)"))
            #expect(try await Push(token: Self.other).send(to: server).status == 200)
            #expect(try await Push().send(to: server).status == status)
            #expect(server.service.rules.all.isEmpty)
            #expect(try await Push().send(to: server).status == 200)
        }
    }

    @Test("buttons are applied in their order, before all other rules")
    func order() async throws {
        try await withSimulator(rules: ["answer=500"], hasControlPort: true) { server in
            for answer in ["410", "429", "429"] { try await press(answer, server) }
            try await press("503", token: Self.other, server)
            var statuses: [Int] = []
            for _ in 0..<4 { statuses.append(try await Push().send(to: server).status) }
            #expect(statuses == [410, 429, 429, 500])
            #expect(try await ask("/inbox/forget", server, form: ["token": Self.other]).status == 303)
            #expect(try await Push(token: Self.other).send(to: server).status == 500)
            let form = ["rule": "answer=500", "isGateway": "false"]
            #expect(try await ask("/inbox/remove", server, form: form).status == 303)
            #expect(server.service.rules.all.isEmpty)
            #expect(try await Push().send(to: server).status == 200)
        }
    }

    @Test("a slow answer arrives late, and a lost one never", arguments: ["slow", "silence", "drop"])
    func lost(answer: String) async throws {
        try await withSimulator(hasControlPort: true) { server in
            try await press(answer, server)
            let start = ContinuousClock.now
            let first = try await Push { $0.arguments = ["--max-time", answer == "silence" ? "8" : "180"] }.send(
                to: server)
            let time = ContinuousClock.now - start
            switch answer {
            case "slow": #expect(first.status == 200 && time > .seconds(4.9))
            case "silence": #expect(first.exit == 28 && first.status == 0)
            default: #expect(first.exit != 0 && first.exit != 28 && first.status == 0)
            }
            #expect(try await Push().send(to: server).status == 200)
            let words = [
                "slow": "answered after 5.0 s", "silence": "no answer", "drop": "connection lost, but accepted",
            ]
            let count = try await ask("/", server).body.ranges(of: try #require(words[answer])).count
            // A button has the text "no answer" even if no push has this answer.
            #expect(answer == "silence" ? count > 1 : count > 0)
        }
    }

    @Test("refuses forms of other sites, and unknown forms")
    func foreign() async throws {
        try await withSimulator(hasControlPort: true) { server in
            let form = ["token": anyToken, "transport": "http2", "answer": "410"]
            let port = try #require(server.controlPort)
            for header in [
                "Origin: https://evil.example", "Origin: null", "Sec-Fetch-Site: cross-site",
                "Sec-Fetch-Site: same-site", "Host: evil.example",
            ] {
                #expect(try await ask("/inbox/next", server, form: form, headers: [header]).status == 403, "\(header)")
                for (path, form) in [
                    ("/inbox/clear", [:]), ("/inbox/delete", ["sequence": "1"]), ("/inbox/forget", ["token": anyToken]),
                    ("/inbox/remove", ["rule": "x", "isGateway": "false"]),
                ] as [(String, [String: String])] {
                    #expect(
                        try await ask(path, server, form: form, headers: [header]).status == 403, "\(path) \(header)")
                }
            }
            #expect(server.service.rules.all.isEmpty)
            let own = ["Origin: http://127.0.0.1:\(port)", "Sec-Fetch-Site: same-origin"]
            #expect(try await ask("/inbox/next", server, form: form, headers: own).status == 303)
            #expect(server.service.rules.all.count == 1)
            // A link on another site may open the page.
            #expect(try await ask("/", server, headers: [Self.browser, "Sec-Fetch-Site: cross-site"]).status == 200)
            for wrong in [
                [:], ["token": "x", "transport": "http2", "answer": "410"],
                ["token": anyToken, "transport": "http2", "answer": "411"],
                ["token": anyToken, "transport": "fax", "answer": "410"],
            ] { #expect(try await ask("/inbox/next", server, form: wrong).status == 400) }
            let huge = ["token": String(repeating: "a", count: 100_000)]
            #expect(try await ask("/inbox/forget", server, form: huge).status == 413)
        }
    }

    @Test("a stream brings each change, and ends when the simulator stops")
    func live() async throws {
        let recorder = Recorder()
        var stream: ChildProcess?
        try await withSimulator(recorder: recorder, hasControlPort: true) { server in
            let port = try #require(server.controlPort)
            let curl = try ChildProcess(
                "/usr/bin/curl",
                [
                    "--silent", "--no-buffer", "--noproxy", "*", "--header", "Accept: text/event-stream",
                    "http://127.0.0.1:\(port)/?text=second",
                ])
            stream = curl
            try await eventually("the first event comes") { curl.output.contains("event: update") }
            #expect(curl.output.contains("Nothing matches."))
            _ = try await Push { $0.body = #"{"aps":{"alert":"first"}}"# }.send(to: server)
            _ = try await Push { $0.body = #"{"aps":{"alert":"the second"}}"# }.send(to: server)
            try await eventually("the push comes") { curl.output.contains("<p>the second</p>") }
            #expect(!curl.output.contains("<p>first</p>"))
            try await press("410", server)
            try await eventually("the rule comes") { curl.output.contains("times=1,answer=410</code>") }
            // Live updates do not count as waiting requests.
            #expect(recorder.waiting == 0)
        }
        try await #require(stream).wait()
    }
}

@Suite("A line per notification", .timeLimit(.minutes(10)))
struct NotificationLinesTests {
    private final class Lines: Sendable {
        let all = Mutex<[String]>([])
        func write(_ line: String) { all.withLock { $0.append(line) } }
        var lines: [String] { all.withLock { $0 } }
    }

    private func alert(_ outcome: ReceivedNotification.Outcome, _ payload: String) -> ReceivedNotification {
        var notification = received(1, token: anyToken, accepted: outcome == .answered(status: 200, reason: nil))
        notification.outcome = outcome
        notification.payload = Array(payload.utf8)
        notification.topic = "com.example.app"
        notification.apnsID = "7a0d"
        return notification
    }

    @Test("has the answer, the token, the text, the topic and the ID")
    func line() {
        var sent = alert(
            .answered(status: 200, reason: nil), #"{"aps":{"alert":{"title":"Your order","body":"On its way"}}}"#)
        sent.answerDelay = 41_000
        #expect(
            NotificationLines.line(sent)
                == #"✓ 200  01234567…  alert "Your order — On its way"  com.example.app  41 ms  apns-id 7a0d"#)
        let refused = alert(.answered(status: 410, reason: "Unregistered"), #"{"aps":{"content-available":1}}"#)
        #expect(
            NotificationLines.line(refused)
                == "✗ 410 Unregistered  01234567…  background  com.example.app  apns-id 7a0d")
        let hostile = alert(.silenced, #"{"aps":{"alert":"a\nb\u001b[2J\u202ec"}}"#)
        #expect(
            NotificationLines.line(hostile)
                == #"✗ no answer  01234567…  alert "a b\u{1B}[2J\u{202E}c"  com.example.app  apns-id 7a0d"#)
        var gateway = ReceivedNotification(
            time: 1, transport: .gateway, connection: 1, accepted: true, outcome: .acceptedByGateway)
        gateway.identifier = 7
        gateway.payload = Array("{}".utf8)
        #expect(NotificationLines.line(gateway) == "✓ accepted  alert (No banner: aps is missing.)  identifier 7")
    }

    @Test("is written as each arrives")
    func follows() async throws {
        let (recorder, lines) = (Recorder(), Lines())
        let task = Task { await NotificationLines(recorder) { lines.write($0) }.run() }
        for number in 1...3 {
            recorder.record(received(number, token: "aa"))
            try await eventually("line \(number)") { lines.lines.count == number }
        }
        recorder.endWaits()
        await task.value
        #expect(lines.lines.count == 3 && recorder.waiting == 0)
    }

    @Test("is omitted in a flood, whose notifications are counted", arguments: [10_000, 100])
    func flood(limit: Int) async throws {
        let (recorder, lines) = (Recorder(limit: limit), Lines())
        for number in 1...1284 { recorder.record(received(number, token: "aa")) }
        let task = Task { await NotificationLines(recorder) { lines.write($0) }.run() }
        let sum = { lines.lines.reduce(0) { $0 + ($1.hasPrefix("… and ") ? Self.number(in: $1) : 1) } }
        try await eventually("all are counted") { sum() == 1284 }
        #expect(lines.lines.count <= 53)
        if limit == 10_000 { #expect(lines.lines.last == "… and 1,234 more") }
        // The remaining lines are printed when the waiting ends, not a second later.
        for number in 1...60 { recorder.record(received(number, token: "bb")) }
        recorder.endWaits()
        task.cancel()
        await task.value
        #expect(sum() == 1344)
    }

    private static func number(in line: String) -> Int { Int(line.filter(\.isNumber)) ?? 0 }
}
