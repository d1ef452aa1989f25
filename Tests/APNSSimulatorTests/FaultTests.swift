import APNSSimulator
import Foundation
import TestSupport
import Testing

@Suite("Rules simulate failures")
struct FaultTests {
    static let dead = "dead" + anyToken.dropFirst(4)

    @Test(
        "with any status and reason",
        arguments: [
            ("answer=410", 410, "Unregistered"), ("answer=429", 429, "TooManyRequests"),
            ("answer=500", 500, "InternalServerError"), ("answer=503", 503, "ServiceUnavailable"),
            ("answer=BadDeviceToken", 400, "BadDeviceToken"),
            ("answer=DeviceTokenNotForTopic", 400, "DeviceTokenNotForTopic"),
            ("answer=ExpiredToken", 410, "ExpiredToken"), ("answer=Shutdown", 503, "Shutdown"),
            ("answer=418,reason=Teapot", 418, "Teapot"),
        ])
    func answers(_ answer: String, _ status: Int, _ reason: String) async throws {
        try await withSimulator(rules: ["prefix=DEAD,\(answer)"]) { server in
            let met = try await Push(token: Self.dead).send(to: server)
            #expect(met.status == status && met.reason == reason)
            #expect(try await Push().send(to: server).status == 200)
            #expect(server.account.accepted == 1)
        }
    }

    @Test("with 410 and its time in milliseconds")
    func timestamps() async throws {
        try await withSimulator(rules: ["prefix=dead,answer=410,timestamp=1700000000123", "answer=410"]) { server in
            let given = try await Push(token: Self.dead).send(to: server)
            #expect(given.member("timestamp") as? Int == 1_700_000_000_123)
            let now = Date().timeIntervalSince1970 * 1000
            let automatic = try await Push().send(to: server).member("timestamp") as? Double
            #expect(abs((automatic ?? 0) - now) < 10_000)
        }
    }

    @Test("for the first requests of each token only")
    func times() async throws {
        try await withSimulator(rules: ["prefix=dead,answer=503,times=1,retry-after=2"]) { server in
            let first = try await Push(token: Self.dead).send(to: server)
            #expect(first.status == 503 && first.headers["retry-after"] == "2")
            #expect(try await Push(token: Self.dead).send(to: server).status == 200)
            #expect(try await Push(token: String(Self.dead.dropLast() + "0")).send(to: server).status == 503)
        }
    }

    @Test("for a share of requests, the same with the same seed")
    func rate() async throws {
        var counts: [Int] = []
        for _ in 0..<2 {
            try await withSimulator(rules: ["rate=0.1,answer=500"], streams: 100) {
                $0.seed = 42
            } _: { server in
                let report = try await h2load(server, requests: 2000, streams: 50)
                #expect(report.status == 0)
                counts.append(server.account.answers["500 InternalServerError"] ?? 0)
                #expect(server.account.answers["200"] == 2000 - counts[counts.count - 1])
            }
        }
        #expect((120...280).contains(counts[0]) && counts[0] == counts[1])
    }

    @Test("for every N-th request of a connection")
    func after() async throws {
        try await withSimulator(rules: ["after=3,answer=503"], streams: 10) { server in
            _ = try await h2load(server, requests: 10, streams: 1)
            #expect(server.account.answers == ["200": 7, "503 ServiceUnavailable": 3])
        }
    }

    @Test("with bodies that are empty, split or not JSON")
    func bodies() async throws {
        let rules = ["aa,body=empty", "bb,body=text", "cc,body=split"].map { "answer=500,prefix=" + $0 }
        try await withSimulator(rules: rules) { server in
            let empty = try await Push(token: deviceToken("aa")).send(to: server)
            #expect(empty.status == 500 && empty.body.isEmpty)
            let text = try await Push(token: deviceToken("bb")).send(to: server)
            #expect(text.body.contains("went wrong") && text.headers["content-type"] == "text/plain")
            #expect(try await Push(token: deviceToken("cc")).send(to: server).reason == "InternalServerError")
            let frames = try await nghttp(server, tokens: [deviceToken("cc")])
            #expect(frames.output.split(separator: "recv DATA frame").count > 5)
        }
    }

    @Test("with delays, so that answers come out of order")
    func delays() async throws {
        try await withSimulator(rules: ["prefix=aa,delay=200ms±10ms", "prefix=bb,delay=1ms"], streams: 10) { server in
            let log = try await nghttp(server, tokens: [deviceToken("aa"), deviceToken("bb")])
            let answers = log.output.split(separator: "\n").compactMap { line in
                line.contains(":status: 200")
                    ? line.firstRange(of: "stream_id=").map { line[$0.upperBound...].prefix { $0.isNumber } } : nil
            }.compactMap { Int($0) }
            #expect(answers.count == 2 && answers == answers.sorted(by: >))
            #expect(server.account.answers == ["200": 2])
        }
    }

    @Test("with RST_STREAM and its code")
    func resets() async throws {
        try await withSimulator(rules: ["answer=reset,code=INTERNAL_ERROR,times=1,accept=true"]) { server in
            let log = try await nghttp(server, tokens: [anyToken]).output
            #expect(log.contains("recv RST_STREAM frame") && log.contains("INTERNAL_ERROR"))
            #expect(server.account.resets == 1 && server.account.acceptedAnswerLost == 1)
            #expect(server.account.answers.isEmpty)
        }
    }

    @Test("by dropping the connection, before or after accepting", arguments: [true, false])
    func drops(_ accepts: Bool) async throws {
        try await withSimulator(rules: ["answer=drop,accept=\(accepts)"]) { server in
            let answer = try await Push().send(to: server)
            #expect(answer.exit != 0 && answer.status == 0)
            let account = server.account
            #expect(account.drops == 1 && account.accepted == (accepts ? 1 : 0))
            #expect(account.acceptedAnswerLost == account.accepted)
        }
    }

    @Test("by never answering, on a connection that answers PINGs but no request, not even an invalid one")
    func silence() async throws {
        for (rule, topic) in [
            ("prefix=01,answer=silence", "com.example.app"),
            ("at=connect,connection=1,answer=wedge", "com.example.app"),
            ("at=connect,times=1,answer=wedge", nil),
        ] as [(String, String?)] {
            try await withSimulator(rules: [rule]) { server in
                let answer = try await Push {
                    $0.arguments = ["--max-time", "0.5"]
                    $0.set("apns-topic", topic)
                }.send(to: server)
                #expect(answer.exit == 28 && answer.status == 0, "\(rule)")
                let account = server.account
                #expect(account.silenced == 1 && account.accepted == 0 && account.protocolErrors == 0, "\(rule)")
                #expect(try await Push(token: Self.dead).send(to: server).status == 200, "\(rule)")
            }
        }
    }

    @Test("on a connection that grants no window beyond the first")
    func noWindow() async throws {
        let big = #"{"aps":{"alert":""# + String(repeating: "x", count: 4000) + #""}}"#
        try await withSimulator(rules: ["at=connect,connection=2,answer=no-window"], streams: 100) { server in
            for connection in 1...2 {
                let log = try await nghttp(
                    server, tokens: (0..<20).map { "aa" + anyToken.dropFirst(4) + String($0 + 10) }, body: big,
                    patience: connection == 1 ? 20 : 1)
                #expect(log.output.contains("recv WINDOW_UPDATE frame") == (connection == 1))
            }
            // 16 bodies fit into 65,535 bytes.
            #expect(server.account.accepted == 20 + 16)
        }
    }

    @Test("on a connection that sends nothing, not even SETTINGS")
    func noSettings() async throws {
        try await withSimulator(rules: ["at=connect,after=2,answer=no-settings"]) { server in
            #expect(try await Push().send(to: server).status == 200)
            let log = try await nghttp(server, tokens: [anyToken], patience: 1)
            #expect(log.output.contains("send SETTINGS frame") && !log.output.contains(" recv "), "\(log.output)")
            #expect(try await Push().send(to: server).status == 200)
            let account = server.account
            #expect(account.connections == 3 && account.requests == 2 && account.bytesSent > 0)
        }
    }

    @Test("for the requests of one connection")
    func oneConnection() async throws {
        try await withSimulator(rules: ["connection=2,answer=503"]) { server in
            var statuses: [Int] = []
            for _ in 0..<3 { statuses.append(try await Push().send(to: server).status) }
            #expect(statuses == [200, 503, 200])
        }
    }

    @Test("with GOAWAY, its debug data and the last stream it names", arguments: PushAction.LastStream.allCases)
    func goAway(_ last: PushAction.LastStream) async throws {
        let rule = "prefix=bb,answer=goaway,reason=Shutdown,last-stream=\(last)"
        try await withSimulator(rules: [rule], streams: 10) { server in
            let log = try await nghttp(server, tokens: ["aa", "bb", "cc"].map(deviceToken)).output
            #expect(log.contains("recv GOAWAY frame") && log.contains(#"{"reason":"Shutdown"}"#))
            let named = log.firstMatch(of: /recv GOAWAY[^(]*(?:\([^)]*\))?[^(]*\(last_stream_id=(\d+)/)?.1
            let streams = log.matches(of: /\[id=\d+\]|send HEADERS frame <[^>]*stream_id=(\d+)>/).compactMap {
                $0.1.flatMap { Int($0) }
            }
            #expect(streams.count == 3)
            let account = server.account
            #expect(account.goAways == 1)
            switch last {
            case .exact:
                #expect(named.flatMap { Int($0) }.map { streams.contains($0) && $0 >= streams[1] } == true)
                #expect((account.answers["200"] ?? 0) >= 2)
            case .accepted:
                #expect(named.flatMap { Int($0) } == streams[0] && account.answers["200"] == 1)
            case .zero: #expect(named == "0" && account.accepted == 1)
            }
        }
    }

    @Test("by lowering the stream limit for a while")
    func lowersLimit() async throws {
        try await withSimulator(rules: ["streams=3,for=50ms", "delay=400ms"]) {
            $0.maximumStreams = 77
        } _: { server in
            let log = try await nghttp(server, tokens: [anyToken])
            #expect(limits(log.output) == [1, 77, 3, 77])
        }
    }
}

@Suite("The stream limit follows the provider token")
struct StreamLimitTests {
    @Test("is at its maximum at once for a client certificate")
    func certificate() async throws {
        let arguments = ["--verbose", "--null-out"] + (try Push.certificate.get())
        try await withSimulator(asksForCertificates: true) { server in
            let log = try await Command.run("/usr/bin/nghttp", arguments + ["https://127.0.0.1:\(server.port)/"])
            // The limit drops to 1, because the simulator refuses nghttp's request.
            #expect(limits(log.output) == [1000, 1])
        }
    }
}
