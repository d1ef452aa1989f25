import Foundation
import NIOCore
import PushJob
import PushQueue
import Testing

@testable import Operations

@Suite("Numbers by columns")
struct CountsTests {
    private static func job(_ members: String) -> JobRow {
        let body = ByteBuffer(string: #"{"token":"ab","alert":"x"\#(members)}"#)
        return JobRow(queue: "q", job: StoredJob(body, size: body.readableBytes, format: .native), now: 0)
    }

    @Test("jobs are counted by their app, fair key and labels, the largest number first")
    func jobs() throws {
        let rows = [
            Self.job(#","app":"shop","fair":"acme","labels":{"country":"de"}"#),
            Self.job(#","app":"shop","fair":"acme","labels":{"country":"fr"}"#),
            Self.job(#","app":"shop","fair":"other""#), Self.job(""),
        ]
        func counted(_ by: String) throws -> [String] {
            var counts = Counts<JobRow>(by: try Counts<JobRow>.groups(by))
            for row in rows { counts.add(row) }
            #expect(counts.sum == 4)
            return counts.rows.map { row in "\(row.count) " + row.values.map { $0 ?? "-" }.joined(separator: " ") }
        }
        #expect(try counted("app") == ["3 shop", "1 -"])
        #expect(try counted("fair").first == "2 acme" && counted("fair").count == 3)
        #expect(try counted("label.country") == ["2 -", "1 de", "1 fr"])
        #expect(try counted("app,state") == ["3 shop waiting", "1 - waiting"])
        // Names that look alike are counted apart, and the JSON can have any name of a label.
        var twins = Counts<JobRow>(by: try Counts<JobRow>.groups(#"fair,label.a"b"#))
        for fair in ["caf\u{E9}", "cafe\u{301}"] {
            twins.add(Self.job(#","fair":"\#(fair)","labels":{"a\"b":"\#(fair)"}"#))
        }
        #expect(twins.rows.map(\.count) == [1, 1])
        for row in twins.rows {
            let object = try JSONSerialization.jsonObject(with: Data(twins.json(row).utf8)) as? [String: Any]
            #expect(object?[#"label.a"b"#] as? String == row.values[0])
        }
        var counts = Counts<JobRow>(by: ["app", "label.country"])
        counts.add(rows[0])
        #expect(counts.rows.map(counts.json) == [#"{"app":"shop","count":1,"label.country":"de"}"#])
    }

    @Test(
        "unknown columns are refused with those that are known",
        arguments: ["", "app,", "label.", "label.NAME", "size"])
    func unknown(text: String) {
        let mistake = #expect(throws: FieldMistake.self) { try Counts<JobRow>.groups(text) }
        #expect(mistake?.text(.flag).contains("jobs are counted by state, app, campaign, fair, label.NAME") == true)
        #expect(throws: FieldMistake.self) { try Counts<InvalidTokenSet.Listed>.groups("label.country") }
    }

    @Test(
        "a label is a name and a value",
        arguments: [("country=de", true), ("a=b=c", true), ("=de", false), ("de", false)])
    func label(text: String, isLabel: Bool) throws {
        let fields = Fields([("label", text)])
        guard isLabel else {
            let mistake = #expect(throws: FieldMistake.self) { try JobFilter(fields, now: 0) }
            #expect(mistake?.text(.member).contains("such as country=de") == true)
            return
        }
        let filter = try JobFilter(fields, now: 0)
        #expect(filter.labels == [Name(text)] && filter.readsJobs)
        #expect(try DeadLetterFilter(fields, now: 0).labels == [text] && ResultFilter(fields).labels == [Name(text)])
    }
}
