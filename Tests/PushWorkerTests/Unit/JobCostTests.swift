import Foundation
import NIOCore
import PushJob
import Testing

@testable import PushWorker

/// The cost of a job for a lane. A job that is extreme in one dimension may cost at most ten times as much per byte as a plain one. The
/// thread's processor time is measured, because other load changes it little.
@Suite("The cost of a job", .serialized)
struct JobCostTests {
    /// The approximate size in bytes of all compared jobs together.
    private static let size = 400_000
    private static let token = String(repeating: "ab", count: 32)

    private static func job(_ members: String) -> String { #"{"token":"\#(token)",\#(members)}"# }

    /// Returns members of about ``size`` bytes.
    private static func members(_ member: (Int) -> String) -> String {
        var (members, length): ([String], Int) = ([], 0)
        while length < size {
            members.append(member(members.count))
            length += members[members.count - 1].utf8.count + 1
        }
        return members.joined(separator: ",")
    }

    private static func fill(_ text: String, _ count: Int? = nil) -> String {
        String(repeating: text, count: count ?? size / text.utf8.count)
    }

    private static func distinct(_ number: Int) -> String {
        let digits = String(number, radix: 16)
        return String(repeating: "0", count: 64 - digits.count) + digits
    }

    private static let plain = (0..<size / 330).map { number in
        job(
            #""id":"order-\#(number)","payload":{"aps":{"alert":{"title":"Your order","body":"It has left our house, and "#
                + #"arrives tomorrow between nine and eleven."},"sound":"default","thread-id":"orders"},"order":\#(number)},"#
                + #""topic":"com.example.shop","priority":10,"expiration":"1h""#)
    }

    /// Extreme jobs, by their extreme dimension.
    private static let extremes: [(name: String, jobs: [String])] = {
        let known = ["tokem", "tokenz", "payloads", "prioritty", "colapse_id", "expiratoin", "aletr", "custm"]
        var all: [(String, [String])] = [
            ("unknown members", [job(#""alert":"x","# + members { #""m\#($0)":1"# })]),
            ("members like known ones", [job(#""alert":"x","# + members { #""\#(known[$0 % 8])\#($0 % 10)":1"# })]),
            (
                "long names",
                [job(#""alert":"x","# + members { #""collapse_identification_number_\#($0)":1"# })]
            ),
            ("one member again and again", [job(#""alert":"x","# + members { _ in #""tokem":1"# })]),
            ("members without a device", ["{\"alert\":\"x\"," + members { #""tokem\#($0)":1"# } + "}"]),
            ("members without a payload", [job(members { #""payloda\#($0)":1"# })]),
            (
                "names of its own in each job",
                (0..<size / 900).map { number in
                    job(#""alert":"x","# + (0..<60).map { #""user_\#($0)_\#(number)":1"# }.joined(separator: ","))
                }
            ),
            ("depth", [job(#""alert":"x","x":"# + fill("[", size / 2) + fill("]", size / 2))]),
            ("escapes", [job(#""alert":"x","x":""# + fill(#"\u0041"#) + "\"")]),
            ("escapes in names", [job(#""alert":"x","# + members { #""\#(fill(#"\u0074"#, 6))\#($0)":1"# })]),
            ("combining marks", [job(#""alert":"x","x":"e"# + fill("\u{301}") + "\"")]),
            ("a long name", [job(#""alert":"x",""# + fill("e\u{301}") + #"":1"#)]),
            ("a number", [job(#""alert":"x","x":"# + fill("7"))]),
            ("numbers", [job(#""alert":"x","x":["# + members { "\($0).5e3" } + "]")]),
            ("white space", [job(#""alert":"x""# + fill(" \n\t"))]),
            ("labels", [job(#""alert":"x","labels":{"# + members { #""l\#($0)":"v""# } + "}")]),
            ("equal tokens", [#"{"alert":"x","tokens":["# + members { _ in "\"\(token)\"" } + "]}"]),
            ("malformed tokens", [#"{"alert":"x","tokens":["# + members { "\"zz\($0)\"" } + "]}"]),
            ("distinct tokens", [#"{"alert":"x","tokens":["# + members { "\"\(distinct($0))\"" } + "]}"]),
            ("no JSON at its end", [job(#""alert":"x","x":["# + members { "\($0)" } + "],")]),
            ("no object", [fill("x")]),
        ]
        for part in ["payload", "aps", "alert", "custom"] {
            let inner = members { #""\#(known[$0 % 8])\#($0)":1"# }
            let text =
                switch part {
                case "payload": #""payload":{"aps":{"alert":"x","badge":"1"},\#(inner)}"#
                case "aps": #""payload":{"aps":{"alert":"x",\#(inner)}}"#
                case "alert": #""payload":{"aps":{"alert":{"body":"x",\#(inner)}}}"#
                default: #""alert":"x","custom":{"aps":{},\#(inner)}"#
                }
            all.append(("members in \(part)", [job(text)]))
        }
        return all
    }()

    /// Returns the nanoseconds of processor time per byte, as the least of three measurements.
    private static func cost(_ jobs: [String], _ body: ([String]) throws -> Void) rethrows -> Double {
        let bytes = jobs.reduce(0) { $0 + $1.utf8.count }
        var least = Double.infinity
        for _ in 0..<3 {
            var clock = ThreadClock()
            _ = clock.sinceLast()
            try body(jobs)
            least = min(least, Double(clock.sinceLast()) / Double(bytes))
        }
        return least
    }

    /// Returns the extremes that cost more than ten times as much as plain jobs.
    private static func excessive(_ body: ([String]) throws -> Void) rethrows -> [String] {
        let usual = try cost(plain, body)
        return try extremes.compactMap { name, jobs in
            let cost = try cost(jobs, body)
            return cost > 10 * usual ? "\(name): \(Int(cost * 10 / usual)) tenths of a plain job's" : nil
        }
    }

    @Test("A lane takes, sends and ends jobs of any kind at the cost of their bytes")
    func lane() throws {
        let excessive = try Self.excessive { jobs in
            let scene = try EngineScene { $0.apps[0].topic = "com.example.shop" }
            scene.queue.jobs = jobs
            var rounds = 0
            while !(scene.queue.jobs.isEmpty && scene.queue.held.isEmpty), rounds < 20000 {
                scene.wake()
                scene.run(.milliseconds(20))
                scene.deliverAll()
                rounds += 1
            }
            #expect(scene.queue.held.isEmpty)
        }
        #expect(excessive.isEmpty, "\(excessive)")
    }

    @Test("A check names mistakes at the cost of a job's bytes")
    func check() throws {
        let now: Int64 = 1_795_000_000_000
        let check = JobCheck([try EngineScene.app("shop")])
        let excessive = Self.excessive { jobs in
            for job in jobs {
                let body = ByteBuffer(string: job)
                _ = JobCheck.review(body, as: .native, now: now)
                _ = check.run(body, name: "job", now: now)
            }
        }
        #expect(excessive.isEmpty, "\(excessive)")
    }

    @Test("Thousands of misspelled members have at most a hundred hints")
    func hints() {
        let body = ByteBuffer(
            string: Self.job(
                #""alert":"x","#
                    + (0..<5000).map { #""toke\#($0 % 10)":1"# }
                    .joined(separator: ",")))
        let review = JobCheck.review(body, as: .native, now: 1_795_000_000_000)
        #expect(review.hints.count == MemberName.maximumCompared)
    }
}
