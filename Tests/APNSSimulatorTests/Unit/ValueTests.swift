import APNS
import Testing

@testable import APNSSimulator

@Suite("The text of a rule, a setting or a device")
struct RuleErrorTests {
    enum Kind: Sendable {
        case rule, gatewayRule, feedbackRule, setting, device

        func read(_ text: String) throws(RuleError) {
            switch self {
            case .rule: _ = try FaultRule(text)
            case .gatewayRule: _ = try GatewayRule(text)
            case .feedbackRule: _ = try FeedbackRule(text)
            case .device: _ = try RegisteredDevice(text)
            case .setting:
                var settings = SimulatorSettings()
                defer { #expect(settings == SimulatorSettings()) }
                try settings.change(text)
            }
        }
    }

    /// Invalid texts, each with the key at fault; `nil` if the whole text is invalid.
    static let mistakes: [(Kind, [(String, String?)])] = [
        (
            .rule,
            [
                ("prefix=xyz,answer=410", "prefix"), ("rate=2,answer=500", "rate"), ("times=0,answer=500", "times"),
                ("answer=maybe", "answer"), ("answer=400", "answer"), ("answer=reset,code=OOPS", "code"),
                ("answer=410,for=1s", "for"), ("answer=410,colour=red", "colour"), ("answer=410,answer=500", "answer"),
                ("delay=soon", "delay"), ("streams=-1", "streams"), ("answer=goaway,last-stream=9", "last-stream"),
                ("answer=410,accept=true", "accept"), ("answer=500,body=gzip", "body"),
                ("answer=503,retry-after=x", "retry-after"), ("answer=wedge", "answer"), ("answer=no-window", "answer"),
                ("at=connect,answer=503", "answer"), ("at=once,answer=wedge", "at"),
                ("connection=0,answer=503", "connection"),
                ("at=channels,answer=wedge", "answer"), ("at=channels,prefix=aa,answer=503", "prefix"),
                ("answer=503,reason=\"", "reason"),
                ("at=connect,answer=wedge,prefix=aa", "prefix"), ("at=connect,answer=wedge,delay=1s", "delay"),
                ("prefix=dead", nil), ("", nil), ("410", nil), ("=1", nil), ("at=connect", nil),
            ]
        ),
        (
            .gatewayRule,
            [
                ("answer=oops", "answer"), ("answer=256", "answer"), ("at=nowhere,answer=8", "at"),
                ("answer=8,accept=true", "accept"), ("answer=10,accept=maybe", "accept"),
                ("answer=hang,delay=1s", "delay"),
                ("answer=8,identifier=7", "identifier"), ("answer=8,packet=third", "packet"),
                ("answer=8,split=1", "split"),
                ("answer=close,linger=true", "linger"), ("at=connect,answer=8,prefix=aa", "prefix"),
                ("at=connect,answer=10,identifier=0", "identifier"), ("at=connect,answer=close,accept=true", "accept"),
                ("at=connect,answer=feedback", "answer"), ("answer=feedback,delay=1s", "delay"),
                ("answer=8,delay=x", "delay"),
                ("prefix=xyz,answer=8", "prefix"), ("rate=2,answer=8", "rate"), ("times=0,answer=8", "times"),
                ("answer=8,reason=x", "reason"),
                ("prefix=aa", nil), ("at=connect,times=2", nil), ("", nil),
            ]
        ),
        (
            .feedbackRule,
            [
                ("slow=soon", "slow"), ("pieces=0", "pieces"), ("pieces=7..1", "pieces"), ("pieces=1.7", "pieces"),
                ("pieces=1..2..3", "pieces"), ("cut=-1", "cut"), ("hang=yes", "hang"), ("times=0,hang=true", "times"),
                ("hang=true,answer=8", "answer"),
                ("times=2", nil), ("hang=false", nil),
            ]
        ),
        (
            .setting,
            [
                ("error-limit=0", "error-limit"), ("token-age=soon", "token-age"), ("environment=test", "environment"),
                ("bind-topics=true", "bind-topics"), ("unique-id=yes", "unique-id"), ("colour=red", "colour"),
                ("error-limit=5,error-streams=-1", "error-streams"),
            ]
        ),
        (
            .device,
            [
                ("topic=a", "token"), ("token=abc,topic=a", "token"), ("token=\(anyToken)", "topic"),
                ("token=\(anyToken),topic=a,environment=x", "environment"),
                ("token=\(anyToken),topic=a,state=x", "state"),
                ("token=\(anyToken),topic=a,since=1", "since"), ("token=\(anyToken),topic=a,colour=red", "colour"),
            ]
        ),
    ]

    @Test("is refused with the key at fault", arguments: mistakes)
    func namesKey(_ kind: Kind, _ texts: [(String, String?)]) {
        for (text, key) in texts {
            let error = #expect(throws: RuleError.self, "\(text)") { try kind.read(text) }
            #expect(error?.key == key, "\(text)")
            let name = kind == .setting ? "setting" : kind == .device ? "device" : "rule"
            #expect(error?.description.hasPrefix("\(name) '\(text)'") == true, "\(text)")
        }
    }
}

@Suite("The text of a rule")
struct FaultRuleTests {
    @Test("can specify every documented reason, and those that APNs sends in another spelling")
    func reasons() throws {
        let observed = ["BadEnvironmentKeyInToken", "BroadcastFeatureNotEnabled", "Service Unavailable"]
        for reason in APNSReason.allCases.map(\.rawValue) + observed {
            for point in ["", "at=channels,"] {
                guard case .response(let response) = try FaultRule("\(point)answer=\(reason)").action.answer else {
                    Issue.record("\(reason) is no answer")
                    continue
                }
                #expect(response.reason == reason && (400...599).contains(response.status))
            }
        }
        let rule = try FaultRule("answer=503,reason=Service Unavailable")
        #expect(rule.action.answer == .response(.init(status: 503, reason: "Service Unavailable")))
    }

    @Test("may have spaces")
    func spaces() throws {
        #expect(try FaultRule(" prefix = dead , answer = 410 ") == FaultRule("prefix=dead,answer=410"))
    }
}

@Suite("A run of errors")
struct ErrorRunTests {
    @Test("ends the connection when it is long, sooner for bad tokens; 410 does not count")
    func ends() {
        var settings = SimulatorSettings()
        settings.errorLimit = 4
        settings.badTokenLimit = 2
        var errors = ErrorRun(settings)
        for (status, reason) in [(400, "BadTopic"), (410, "Unregistered"), (400, "BadDeviceToken"), (500, "x")] {
            #expect(errors.answered(status, reason: reason) == false)
        }
        #expect(errors.answered(400, reason: "BadDeviceToken") == true)
        #expect(errors.answered(200, reason: nil) == false)
        for _ in 0..<3 { #expect(errors.answered(403, reason: "Forbidden") == false) }
        for _ in 0..<9 { #expect(errors.answered(410, reason: "Unregistered") == false) }
        #expect(errors.answered(429, reason: "TooManyRequests") == true)
    }
}

@Suite("Settings")
struct SimulatorSettingsTests {
    @Test("are read as they are written")
    func reads() throws {
        var settings = SimulatorSettings()
        #expect(
            settings.description
                == "environment=production,error-streams=1,error-limit=100,bad-token-limit=20,token-interval=1200s,"
                + "token-age=3600s,expired-wedge=on,bind-topics=on,registered-only=off,unique-id=auto,no-broadcasts=")
        let all =
            "environment=sandbox,error-streams=off,error-limit=7,bad-token-limit=off,token-interval=off,token-age=60s,"
            + "expired-wedge=off,bind-topics=off,registered-only=on,unique-id=off,no-broadcasts=com.a+com.b"
        try settings.change(all)
        #expect(settings.description == all)
        try settings.change(" error-limit = 8 ")
        #expect(settings.description == all.replacing("limit=7", with: "limit=8"))
        try settings.change(SimulatorSettings().description)
        #expect(settings == SimulatorSettings())
    }
}

@Suite("The text of a device")
struct RegisteredDeviceTests {
    @Test(
        "is read as it is written",
        arguments: [
            "token=\(anyToken),topic=com.example.app,environment=production,state=active",
            "token=\(anyToken),topic=com.example.app.voip,environment=sandbox,state=unregistered,since=1700000000000",
            "token=\(anyToken),topic=a,environment=sandbox,state=expired",
        ])
    func reads(_ text: String) throws {
        #expect(try RegisteredDevice(text).text == text)
        let file = "# two of them\n\n\(text)\n  \n\(text)\n"
        #expect(try RegisteredDevice.all(inFile: file).map(\.text) == [text, text])
    }
}

@Suite("Counts of the newest keys")
struct RecentCountsTests {
    @Test("are exact up to the limit, and their memory is bounded beyond it", arguments: [1, 2, 10, 100])
    func bounded(limit: Int) {
        var counts = RecentCounts<Int>(limit: limit)
        for number in 0..<1000 {
            #expect(counts.add(number) == 1)
            #expect(counts.count <= 2 * limit)
            #expect(counts.distinct == number + 1)
            // The newest keys are kept.
            #expect(counts[max(0, number - limit + 1)] == 1)
        }
        #expect(counts.forgotten == 1000 - counts.count)
        #expect(counts.add(999) == 2 && counts[999] == 2 && counts.distinct == 1000)
        #expect(counts.add(0) == 1 && counts.distinct == 1001)
    }

    @Test("forget nothing without a limit")
    func unbounded() {
        var counts = RecentCounts<Int>(limit: nil)
        for number in 0..<1000 { _ = counts.add(number % 500) }
        #expect(counts.count == 500 && counts.forgotten == 0 && counts.all.allSatisfy { $0.value == 2 })
    }
}

@Suite("A delay")
struct AnswerDelayTests {
    @Test("is read with its unit and jitter")
    func reads() {
        #expect(AnswerDelay("20ms±5ms") == AnswerDelay(milliseconds: 20, jitterMilliseconds: 5))
        #expect(AnswerDelay("20ms+-5ms") == AnswerDelay(milliseconds: 20, jitterMilliseconds: 5))
        #expect(AnswerDelay("1s500ms") == AnswerDelay(milliseconds: 1500))
        #expect(AnswerDelay("20m") == AnswerDelay(milliseconds: 1_200_000))
        #expect(AnswerDelay("1h") == AnswerDelay(milliseconds: 3_600_000))
    }

    @Test("is written as it is read", arguments: ["0ms", "20ms", "20ms±5ms", "90s±1500ms", "1h"])
    func writes(_ text: String) {
        #expect(AnswerDelay(text)?.description == text)
    }

    @Test(
        "is refused otherwise",
        arguments: [
            "", "20", "ms", "-1ms", "nans", "1ms±2ms", "1ms±", "61m", "2h", "1.5s", "800us", "1ms±1ms±1ms", "infs",
        ])
    func refuses(_ text: String) { #expect(AnswerDelay(text) == nil) }

    @Test("varies within its jitter, and uses all of it")
    func draws() {
        var generator = SeededGenerator(seed: 7)
        let draws = (0..<1000).map { _ in
            AnswerDelay(milliseconds: 20, jitterMilliseconds: 5).draw(&generator)
        }
        #expect(draws.allSatisfy { (15_000...25_000).contains($0) })
        #expect((draws.min() ?? 0) < 15_500 && (draws.max() ?? 0) > 24_500)
    }
}

@Suite("The wheel of delays")
struct DelayWheelTests {
    @Test("returns due entries in order, and none earlier", arguments: [0, 5_000_000_123] as [Int64])
    func order(_ start: Int64) {
        var wheel = DelayWheel(now: start)
        for (stream, delay) in [(1, 30), (3, 10), (5, 5000), (7, 10), (9, 1034)] as [(Int32, Int64)] {
            wheel.hold(stream: stream, until: start + delay)
        }
        var seen: [Int32] = []
        var times: [Int64] = []
        while let next = wheel.next {
            let before = seen.count
            wheel.advance(to: next) { seen.append($0) }
            for _ in before..<seen.count { times.append(next - start) }
        }
        #expect(seen == [3, 7, 1, 9, 5])
        #expect(times == [10, 10, 30, 1034, 5000])
        #expect(wheel.count == 0)
    }

    @Test("catches up after the loop was blocked for rounds")
    func catchesUp() {
        var wheel = DelayWheel(now: 0)
        for stream in 1...100 as ClosedRange<Int32> { wheel.hold(stream: stream, until: Int64(stream) * 40) }
        var seen = 0
        wheel.advance(to: 100_000) { _ in seen += 1 }
        #expect(seen == 100)
        #expect(wheel.next == nil)
    }
}

@Suite("A stream limit")
struct StreamLimitStateTests {
    @Test("is lowered by an error and raised by the next success")
    func errors() {
        var limit = StreamLimit(initial: 1, maximum: 1000, afterError: 1, isTrusted: false)
        #expect(limit.current == 1)
        #expect(limit.answered(403) == nil)
        #expect(limit.trust() == nil)
        #expect(limit.answered(200) == 1000)
        #expect(limit.trust() == nil && limit.answered(200) == nil && limit.answered(410) == nil)
        #expect(limit.answered(500) == nil)
        #expect(limit.answered(400) == 1)
        #expect(limit.answered(410) == nil && limit.answered(503) == nil && limit.answered(429) == nil)
        #expect(limit.answered(204) == 1000)
    }

    @Test("can be fixed")
    func noPenalty() {
        var limit = StreamLimit(initial: 1, maximum: 1000, afterError: nil, isTrusted: false)
        #expect(limit.trust() == 1000)
        #expect(limit.answered(400) == nil && limit.current == 1000)
    }

    @Test("stays lowered for its time")
    func lowered() {
        var limit = StreamLimit(initial: 1, maximum: 1000, afterError: 1, isTrusted: true)
        #expect(limit.lower(to: 3, until: 50) == 3)
        #expect(limit.advance(to: 49) == nil)
        #expect(limit.advance(to: 50) == 1000)
        #expect(limit.liftedAt == nil)
    }
}

@Suite("The check for JSON objects")
struct JSONObjectCheckTests {
    @Test(
        "accepts objects only",
        arguments: [
            ("{}", true), (" {\"a\" : [1, -2.5e+3, true, false, null, {}, []] }\n", true), (#"{"ü":0.1}"#, true),
            (#"{"a":"\ud83d\uDE00x"}"#, true), (#"{"a":"\ud83d"}"#, false), ("", false), ("[]", false), ("1", false),
            ("{", false), ("{}}", false), ("{\"a\":1,}", false), ("\u{FEFF}{}", false),
            (String(repeating: "{\"a\":", count: 100) + "1" + String(repeating: "}", count: 100), false),
        ])
    func objects(_ text: String, isObject: Bool) {
        Array(text.utf8).withUnsafeBufferPointer { #expect(JSONObjectCheck.accepts($0) == isObject) }
    }

    @Test("refuses text that is not UTF-8")
    func encoding() {
        let text = Array("{\"a\":\"".utf8) + [0xFF] + Array("\"}".utf8)
        text.withUnsafeBufferPointer { #expect(!JSONObjectCheck.accepts($0)) }
    }
}

@Suite("Tokens and ids")
struct IdentifierTests {
    @Test("a device token is kept digit for digit", arguments: [64, 66, 160, 200, 512, 2048])
    func tokens(_ digits: Int) throws {
        let text = String((0..<digits).map { Character(String($0 * 7 % 16, radix: 16)) })
        let token = try #require(SimulatedToken(hex: text.uppercased()))
        #expect(token.hex == text)
        #expect(token == SimulatedToken(hex: text))
        #expect(token != SimulatedToken(hex: String(text.dropLast()) + (text.last == "0" ? "1" : "0")))
    }

    @Test("rejects other lengths and characters", arguments: [62, 65, 2050])
    func noTokens(_ digits: Int) {
        #expect(SimulatedToken(hex: String(repeating: "a", count: digits)) == nil)
        #expect(SimulatedToken(hex: String(repeating: "g", count: 64)) == nil)
        #expect(SimulatedToken(hex: String(repeating: "a", count: 65) + "g") == nil)
    }

    @Test("a prefix matches the tokens that begin with it")
    func prefixes() throws {
        let token = try #require(SimulatedToken(hex: anyToken))
        for length in 1...64 {
            let prefix = try #require(TokenPrefix(anyToken.prefix(length)))
            #expect(prefix.matches(token))
        }
        for other in ["1", anyToken.prefix(40) + "0"] {
            let prefix = try #require(TokenPrefix(other))
            #expect(!prefix.matches(token))
        }
        #expect(TokenPrefix(anyToken + "0") == nil)
    }

    @Test("a new apns-id is a UUID of version 4 in upper case")
    func ids() throws {
        var generator = SeededGenerator(seed: 3)
        let id = APNSID(random: &generator)
        var bytes = [UInt8](repeating: 0, count: APNSID.textLength)
        id.writeUpperCase(to: &bytes)
        #expect(APNSID(bytes) == id)
        let made = String(decoding: bytes, as: UTF8.self)
        #expect(made.wholeMatch(of: /[0-9A-F]{8}-[0-9A-F]{4}-4[0-9A-F]{3}-[89AB][0-9A-F]{3}-[0-9A-F]{12}/) != nil)
    }
}
