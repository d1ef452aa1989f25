import NIOCore
import Testing

@testable import Dashboard

@Suite("Jobs in requests")
struct RequestJobsTests {
    private static func read(_ text: String) throws -> (unit: String, items: [String]) {
        // A body that arrived in parts can have a reader index other than 0.
        var body = ByteBuffer(string: "?" + text)
        body.moveReaderIndex(forwardBy: 1)
        let jobs = try RequestJobs(body)
        return (jobs.unit, jobs.items.map { "\($0.number) \(String(buffer: $0.text))" })
    }

    @Test(
        "are an object, lines, objects over several lines or without a separator, or the elements of an array",
        arguments: [
            (#"{"a":1}"#, "line", [#"1 {"a":1}"#]), ("\n\n {\"a\":\n1}\r\n\n", "line", ["3 {\"a\":\n1}"]),
            ("{\"a\":1}\n{\"b\":2}\n\n{\"c\":3}", "line", [#"1 {"a":1}"#, #"2 {"b":2}"#, #"4 {"c":3}"#]),
            (#"{"a":1}{"b":2}"#, "line", [#"1 {"a":1}"#, #"1 {"b":2}"#]),
            (" [ {\"a\":1} ,\n{\"b\":[2]}]\n", "job", [#"1 {"a":1}"#, #"2 {"b":[2]}"#]), ("[1]", "job", ["1 1"]),
        ])
    func forms(text: String, unit: String, items: [String]) throws {
        let found = try Self.read(text)
        #expect(found.unit == unit && found.items == items)
    }

    @Test(
        "that are not valid JSON are each a job of their own, so that the others keep their numbers",
        arguments: [
            ("{\"a\":1}\n{\"b\n{\"c\":3}", [#"1 {"a":1}"#, #"2 {"b"#, #"3 {"c":3}"#]),
            ("nonsense\n{}", ["1 nonsense", "2 {}"]), ("{\"a\":1} x\n{}", [#"1 {"a":1}"#, "1 x", "2 {}"]),
            ("{}\n{\"a\":", ["1 {}", "2 {\"a\":"]), ("}\n", ["1 }"]),
        ])
    func invalid(text: String, items: [String]) throws { #expect(try Self.read(text).items == items) }

    @Test("are at least one, at most a thousand, and in an array valid JSON")
    func refused() throws {
        for text in ["", " \n\n", "[]", "[ ]", "[{}", "[{},]", "[{}] {}", "[{}{}]"] {
            #expect(throws: WebError.self, "\(text)") { try Self.read(text) }
        }
        let line = "{}\n"
        #expect(try Self.read(String(repeating: line, count: 1000)).items.count == 1000)
        for text in [String(repeating: line, count: 1001), "[{}" + String(repeating: ",{}", count: 1000) + "]"] {
            let error = #expect(throws: WebError.self) { try Self.read(text) }
            #expect(error?.status == .contentTooLarge)
        }
    }
}

@Suite("The credit of producers for requests with mistakes")
struct RefusalLimitsTests {
    private let begin = NIODeadline.uptimeNanoseconds(1_000_000_000)

    @Test("The credit ends after a hundred requests, and grows by ten per second; one producer's is not another's.")
    func credit() {
        var limits = RefusalLimits()
        for _ in 1...100 { #expect(limits.take("shop", now: begin) == .granted) }
        #expect(limits.take("shop", now: begin) == .refusedFirst && limits.take("shop", now: begin) == .refused)
        #expect(limits.take("blog", now: begin) == .granted)
        #expect(limits.take("shop", now: begin + .milliseconds(99)) == .refused)
        let later = begin + .milliseconds(101)
        #expect(limits.take("shop", now: later) == .granted)
        // The refusal is reported once until the credit is full again.
        #expect(limits.take("shop", now: later) == .refused)
        let end = later + .seconds(11)
        for _ in 1...100 { #expect(limits.take("shop", now: end) == .granted) }
        #expect(limits.take("shop", now: end) == .refusedFirst)
    }

    @Test("A request without mistakes gives its credit back, and never more than it took.")
    func giveBack() {
        var limits = RefusalLimits()
        for _ in 1...1000 {
            #expect(limits.take("shop", now: begin) == .granted)
            limits.giveBack("shop", now: begin)
        }
        // All 100 requests can be in progress at the same time.
        for _ in 1...100 { #expect(limits.take("shop", now: begin) == .granted) }
        #expect(limits.take("shop", now: begin) != .granted)
        for _ in 1...200 { limits.giveBack("shop", now: begin) }
        for _ in 1...100 { #expect(limits.take("shop", now: begin) == .granted) }
        #expect(limits.take("shop", now: begin) != .granted)
    }
}

@Suite("The answer to a request whose jobs are enqueued")
struct EnqueuedAnswerTests {
    @Test("is JSON with the IDs in order, and without characters that mislead the reader of a terminal")
    func json() throws {
        var answer = EnqueuedAnswer(queue: "default", enqueued: 0, ids: [], hints: [], notes: [])
        #expect(try answer.json() == #"{"enqueued":0,"hints":[],"ids":[],"notes":[],"queue":"default"}"#)
        var hints = HintList()
        hints.append(.init(kind: "a", rule: "rule", message: "x \"y\""), 2)
        answer = EnqueuedAnswer(
            queue: "\"q\"", enqueued: 3, ids: ["a", nil, "b\n\u{202E}é"], hints: hints.kinds, notes: ["n/m"])
        #expect(
            try answer.json()
                == #"{"enqueued":3,"hints":[{"first":2,"hint":"rule","jobs":1,"message":"x \"y\""}],"#
                + #""ids":["a",null,"b\n\u202eé"],"notes":["n/m"],"queue":"\"q\""}"#)
    }
}

@Suite("Hints about jobs in requests")
struct HintListTests {
    @Test("are reported once for each kind, with the first job and the number of jobs")
    func kinds() {
        var hints = HintList()
        func hint(_ kind: String, _ message: String) -> DashboardSource.JobHint {
            .init(kind: kind, rule: "rule", message: message)
        }
        hints.append(hint("a", "first"), 2)
        hints.append(hint("b", "other"), 3)
        hints.append(hint("a", "second"), 5)
        #expect(hints.kinds.map { "\($0.first) \($0.jobs) \($0.message)" } == ["2 2 first", "3 1 other"])
    }
}
