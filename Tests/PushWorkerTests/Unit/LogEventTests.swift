import Foundation
import PushQueue
import Testing

/// A call in the sources that logs a line.
private struct LoggedLine {
    let call: Substring
    let file: String
    /// The values of `event` as they are in the code.
    let events: [String]

    /// All calls. The logging functions of `IssueLog` and `LaneContext` are left out, because their callers name the event.
    static let all = Result { try read() }

    private static func read() throws -> [LoggedLine] {
        let root = URL(filePath: #filePath).deletingLastPathComponent().appending(path: "../../../Sources").standardized
        let files = try #require(FileManager.default.enumerator(at: root, includingPropertiesForKeys: nil))
        let start =
            #/
            (?: [lL]ogger \)? \?? \. (?: trace | debug | info | notice | warning | error | critical | log )
              | \b (?: logOngoing | logEnd | logThrottled ) ) \(
            /#
        var all: [LoggedLine] = []
        for case let file as URL in files where file.pathExtension == "swift" {
            guard !["IssueLog.swift", "LogLine.swift"].contains(file.lastPathComponent) else { continue }
            let text = try String(contentsOf: file, encoding: .utf8)
            for match in text.matches(of: start) {
                // Declarations and mentions in comments are not calls.
                let line = text[..<match.range.lowerBound].split(separator: "\n", omittingEmptySubsequences: false).last
                guard let line, !line.contains("func "), !line.contains("//") else { continue }
                let call = text[match.range.lowerBound..<end(of: match.range.upperBound, in: text)]
                let events = events(in: call, after: text[..<match.range.lowerBound])
                guard events != [#"\(event)"#] else { continue }
                let path = file.standardized.path.dropFirst(root.path.count + 1)
                all.append(LoggedLine(call: call, file: String(path), events: events))
            }
        }
        return all
    }

    /// Returns the end of a call's arguments. Parentheses within strings are balanced.
    private static func end(of start: String.Index, in text: String) -> String.Index {
        var (index, depth) = (start, 1)
        while depth > 0, index < text.endIndex {
            if text[index] == "(" { depth += 1 } else if text[index] == ")" { depth -= 1 }
            index = text.index(after: index)
        }
        return index
    }

    private static func events(in call: Substring, after before: Substring) -> [String] {
        // The call itself has the event, sometimes in an expression that chooses between two events.
        for match in call.matches(of: #/(?:"event"|\bevent): ([^,(\])]*(?:\([^)]*\)[^,(\])]*)*)/#) {
            let events = match.1.matches(of: #/"((?:[^"\\]|\\\([^)]*\))*)"/#).map { String($0.1) }
            if !events.isEmpty { return events }
        }
        // The first string argument of a logging function of the engine.
        if let match = call.prefixMatch(of: #/log(?:Ongoing|End|Throttled)\([^"]*"(\w+)"/#) {
            return [String(match.1)]
        }
        // In a local variable of the function.
        guard let name = call.firstMatch(of: #/metadata: (\w+)\s*[,)]/#)?.1,
            let body = before.ranges(of: "func ").last.map({ before[$0.lowerBound...] })
        else { return [] }
        let pattern =
            #"\b"# + name + #"(?:\["event"\] = |: Logger\.Metadata = \[\s*"event": )"((?:[^"\\]|\\\([^)]*\))*)""#
        guard let assignment = try? Regex(pattern, as: (Substring, Substring).self) else { return [] }
        return body.matches(of: assignment).last.map { [String($0.1)] } ?? []
    }
}

@Suite("The events of the log")
struct LogEventTests {
    /// Computed events, by their expressions in the code.
    private static let computed: [String: [String]] = [
        #"notification_\(outcome)"#: Outcome.allCases.map { "notification_\($0.rawValue)" }
            + Postponement.allCases.map { "notification_\($0.rawValue)" },
        #"\(finding.kind.rawValue)"#: QueueServer.Finding.Kind.allCases.map(\.rawValue),
        #"\(kind.rawValue)_ended"#: QueueServer.Finding.Kind.allCases.map { "\($0.rawValue)_ended" },
    ]

    /// Events that several places log with one meaning: both transports, lanes and other clients of Redis, or all writers of the audit log.
    private static let shared: Set = [
        "apns_connected", "apns_connection_closed", "apns_connection_ended", "apns_connections_replaced",
        "audit_failed", "redis_back", "redis_lost",
    ]

    private static func entries() throws -> [(event: String, line: LoggedLine)] {
        try LoggedLine.all.get().flatMap { line in line.events.flatMap { computed[$0] ?? [$0] }.map { ($0, line) } }
    }

    @Test("every line has one")
    func complete() throws {
        let lines = try LoggedLine.all.get()
        #expect(lines.count > 50)
        for line in lines { #expect(!line.events.isEmpty, "\(line.file): \(line.call)") }
    }

    @Test("no two places log the same one, unless it has the same meaning")
    func unique() throws {
        for (event, lines) in Dictionary(grouping: try Self.entries(), by: \.event) {
            #expect(lines.count == 1 || Self.shared.contains(event), "\(event): \(lines.map(\.line.file))")
        }
    }

    @Test("are words in lower case with underscores")
    func spelling() throws {
        for (event, line) in try Self.entries() {
            #expect(event.wholeMatch(of: /[a-z]+(_[a-z0-9]+)*/) != nil, "\(event) in \(line.file)")
        }
    }
}
