import Foundation
import Logging
import PrintableText
import Testing

@testable import Telemetry

@Suite("A line of the log")
struct LogLineTests {
    static let hostile = [
        "\"", "\\", "a\nb\r\nc", "\u{0}\u{1B}[2J\u{7F}", "\u{85}\u{9B}31m", "\u{2028}\u{2029}", "\u{202E}evil\u{2066}",
        "{\"level\":\"error\"}", "a=b c=d", "é🐎\u{FFFD}", String(repeating: "\u{1}", count: 255),
        String(repeating: "é", count: 9000), "",
    ]

    private func line(_ message: String, _ metadata: Logger.Metadata = [:]) -> LogLine {
        LogLine(
            time: LogTime(milliseconds: 1_795_276_484_007), level: .warning, label: "test", message: message,
            metadata: metadata)
    }

    private func text(_ line: LogLine, _ format: LogFormat, isColored: Bool = false) -> String {
        String(decoding: line.bytes(format, isColored: isColored), as: UTF8.self)
    }

    @Test("has time, level, message and named fields in the text format")
    func plainText() {
        let line = line("it is so", ["b": "two words", "a": "1", "empty": "", "list": ["x", "y"]])
        #expect(
            text(line, .text)
                == #"2026-11-21T15:54:44.007Z warning it is so a=1 b="two words" empty="" list="[\"x\",\"y\"]""# + "\n")
        #expect(text(line, .text, isColored: true).contains("\u{1B}[33mwarning\u{1B}[0m it is so"))
        #expect(
            text(line, .journal, isColored: true) == #"<4>it is so a=1 b="two words" empty="" list="[\"x\",\"y\"]""#
                + "\n")
    }

    @Test("is one JSON object with the common fields, and each name once")
    func json() throws {
        let line = line("it is so", ["time": "mine", "time_": "mine too", "job": "7", "nested": ["a": ["b", "c"]]])
        #expect(
            text(line, .json)
                == #"{"time":"2026-11-21T15:54:44.007Z","level":"warning","message":"it is so","logger":"test","#
                + #""job":"7","nested":{"a":["b","c"]},"time_":"mine","time__":"mine too"}"# + "\n")
    }

    @Test("writes numbers as numbers in JSON, by the names of their fields, and IDs as strings whatever they look like")
    func numbers() throws {
        let metadata: Logger.Metadata = [
            "count": "12", "status": "410", "delivered_per_second": "0.5", "after_ms": "-3", "payload_bytes": "0",
            "job": "123",
            "app": "7", "attempt": "many", "lane": "01", "seconds": "1e9", "port": "1.", "failures": "",
        ]
        let object = try #require(
            try JSONSerialization.jsonObject(with: Data(line("m", metadata).bytes(.json))) as? [String: Any])
        #expect(
            object["count"] as? Int == 12 && object["status"] as? Int == 410
                && object["delivered_per_second"] as? Double == 0.5)
        #expect(object["after_ms"] as? Int == -3 && object["payload_bytes"] as? Int == 0)
        for (name, text) in [
            ("job", "123"), ("app", "7"), ("attempt", "many"), ("lane", "01"), ("seconds", "1e9"), ("port", "1."),
            ("failures", ""),
        ] { #expect(object[name] as? String == text, "\(name)") }
    }

    @Test("is always one line without control characters", arguments: hostile, [LogFormat.text, .journal, .json])
    func oneLine(text hostile: String, format: LogFormat) {
        let text = text(line(hostile, ["job": "\(hostile)", "\(hostile)": "x"]), format)
        #expect(text.hasSuffix("\n"))
        let bare = text.dropLast()
        #expect(!bare.unicodeScalars.contains { $0.isUnprintable })
        #expect(bare.utf8.count < 3 * 8192 * 6 + 1000)
    }

    @Test("has exactly the given values in JSON", arguments: hostile.filter { $0.utf8.count <= 8192 })
    func faithful(hostile: String) throws {
        let bytes = line(hostile, ["job": "\(hostile)", "key \(hostile)": "x"]).bytes(.json)
        let object = try #require(try JSONSerialization.jsonObject(with: Data(bytes)) as? [String: String])
        #expect(object["message"] == hostile && object["job"] == hostile && object["key \(hostile)"] == "x")
    }

    @Test("is unambiguous in the text format: separators are in quotes", arguments: hostile)
    func quoted(hostile: String) throws {
        let text = text(line("m", ["a": "\(hostile)", "z": "end"]), .text)
        #expect(
            text.wholeMatch(of: #/[^ ]+ warning m a=([^ "=\\]+|"([^"\\]|\\.)*") z=end\n/#.dotMatchesNewlines()) != nil,
            "\(text)")
    }

    @Test(
        "has the time in UTC",
        arguments: [(0, "1970-01-01T00:00:00.000Z"), (951_782_400_999, "2000-02-29T00:00:00.999Z")])
    func time(milliseconds: Int64, text: String) { #expect(LogTime(milliseconds: milliseconds).text == text) }
}
