import Glibc
import Logging
import PrintableText

/// One line of a log in any of the formats. It escapes line feeds and control sequences for terminals, because jobs' IDs and servers'
/// answers come from other programs.
struct LogLine {
    var time: LogTime
    var level: Logger.Level
    var label: String
    var message: String
    var metadata: Logger.Metadata

    /// The maximum length of a text in bytes; longer texts are cut off to keep lines readable.
    private static let maximumLength = 8192

    /// Returns the line, including its line feed.
    /// - Parameter isColored: true to color the level in the text format.
    func bytes(_ format: LogFormat, isColored: Bool = false) -> [UInt8] {
        var line: [UInt8] = []
        line.reserveCapacity(256)
        switch format {
        case .json: writeJSON(to: &line)
        case .journal: writeText(to: &line, isForJournal: true, isColored: false)
        case .text, .auto: writeText(to: &line, isForJournal: false, isColored: isColored)
        }
        line.append(UInt8(ascii: "\n"))
        return line
    }

    // MARK: Text

    private func writeText(to line: inout [UInt8], isForJournal: Bool, isColored: Bool) {
        if isForJournal {
            line += "<\(level.priority)>".utf8
        } else {
            line += time.text.utf8
            line.append(UInt8(ascii: " "))
            if isColored { line += level.color.utf8 }
            line += level.rawValue.utf8
            if isColored { line += "\u{1B}[0m".utf8 }
            line.append(UInt8(ascii: " "))
        }
        LogEscape.append(Self.cut(message), to: &line, quotes: false)
        for (key, value) in metadata.sorted(by: { $0.key < $1.key }) {
            line.append(UInt8(ascii: " "))
            Self.appendWord(key, to: &line)
            line.append(UInt8(ascii: "="))
            Self.appendWord(Self.text(of: value), to: &line)
        }
    }

    /// Appends a plain word unchanged, other text in quotes.
    private static func appendWord(_ text: String, to line: inout [UInt8]) {
        let text = cut(text)
        let isPlain =
            !text.isEmpty
            && text.unicodeScalars.allSatisfy {
                $0 != " " && $0 != "\"" && $0 != "=" && $0 != "\\" && !$0.isUnprintable
            }
        if isPlain {
            line += text.utf8
        } else {
            line.append(UInt8(ascii: "\""))
            LogEscape.append(text, to: &line, quotes: true)
            line.append(UInt8(ascii: "\""))
        }
    }

    private static func text(of value: Logger.MetadataValue) -> String {
        switch value {
        case .string(let text): return text
        case .stringConvertible(let value): return value.description
        case .array, .dictionary:
            var json: [UInt8] = []
            append(value, to: &json)
            return String(decoding: json, as: UTF8.self)
        }
    }

    // MARK: JSON

    /// The names that every line has. Metadata with one of these names gets an underscore, so that no name occurs twice.
    private static let ownNames: Set<String> = ["time", "level", "message", "logger"]

    private func writeJSON(to line: inout [UInt8]) {
        line += #"{"time":""#.utf8
        line += time.text.utf8
        line += #"","level":""#.utf8
        line += level.rawValue.utf8
        line += #"","message":"#.utf8
        Self.append(message, to: &line)
        line += #","logger":"#.utf8
        Self.append(label, to: &line)
        var names = Self.ownNames
        for (key, value) in metadata.sorted(by: { $0.key < $1.key }) {
            // A cut or renamed name may equal another name.
            var name = Self.cut(key)
            while !names.insert(name).inserted { name += "_" }
            line.append(UInt8(ascii: ","))
            Self.append(name, to: &line)
            line.append(UInt8(ascii: ":"))
            if let number = Self.number(value, of: key) {
                line += number.utf8
            } else {
                Self.append(value, to: &line)
            }
        }
        line.append(UInt8(ascii: "}"))
    }

    /// The fields that contain numbers. Other fields stay strings, even if they look like numbers: a job's ID can be `123`.
    private static let numericNames: Set<String> = [
        "accepted", "attempt", "by_gateway", "cancelled", "connections", "connections_lost", "connections_made",
        "count",
        "dead", "deferred", "delivered", "delivered_per_second", "dropped", "expired", "failures", "in_flight",
        "invalid_token", "jobs", "lane",
        "lanes", "poisoned", "port", "retried", "scheduled", "seconds", "status", "suppressed", "waiting",
    ]

    /// Returns the number in a field, in JSON's notation; `nil` for a field that is a string.
    private static func number(_ value: Logger.MetadataValue, of name: String) -> String? {
        guard numericNames.contains(name) || name.hasSuffix("_ms") || name.hasSuffix("_bytes") else { return nil }
        let text = text(of: value)
        let digits = text.hasPrefix("-") ? text.dropFirst() : text[...]
        let parts = digits.split(separator: ".", omittingEmptySubsequences: false)
        let isNumber =
            (1...2).contains(parts.count) && text.utf8.count <= 17
            && parts.allSatisfy { !$0.isEmpty && $0.utf8.allSatisfy { $0 &- 0x30 < 10 } }
            && (parts[0] == "0" || !digits.hasPrefix("0"))
        return isNumber ? text : nil
    }

    private static func append(_ value: Logger.MetadataValue, to line: inout [UInt8]) {
        switch value {
        case .string(let text): append(text, to: &line)
        case .stringConvertible(let value): append(value.description, to: &line)
        case .array(let values):
            line.append(UInt8(ascii: "["))
            for (index, value) in values.enumerated() {
                if index > 0 { line.append(UInt8(ascii: ",")) }
                append(value, to: &line)
            }
            line.append(UInt8(ascii: "]"))
        case .dictionary(let values):
            line.append(UInt8(ascii: "{"))
            for (index, (key, value)) in values.sorted(by: { $0.key < $1.key }).enumerated() {
                if index > 0 { line.append(UInt8(ascii: ",")) }
                append(key, to: &line)
                line.append(UInt8(ascii: ":"))
                append(value, to: &line)
            }
            line.append(UInt8(ascii: "}"))
        }
    }

    private static func append(_ text: String, to line: inout [UInt8]) {
        line.append(UInt8(ascii: "\""))
        LogEscape.append(cut(text), to: &line, quotes: true, isJSON: true)
        line.append(UInt8(ascii: "\""))
    }

    /// Returns a text without anything that looks like a secret, cut to a limited length.
    private static func cut(_ text: String) -> String {
        let isLong = text.utf8.count > 2 * maximumLength
        let text = (isLong ? String(decoding: text.utf8.prefix(2 * maximumLength), as: UTF8.self) : text).withoutSecrets
        guard text.utf8.count > maximumLength else { return text }
        return String(decoding: text.utf8.prefix(maximumLength), as: UTF8.self) + "…"
    }
}

extension Logger.Level {
    /// The priority of syslog(3).
    fileprivate var priority: Int {
        switch self {
        case .trace, .debug: 7
        case .info: 6
        case .notice: 5
        case .warning: 4
        case .error: 3
        case .critical: 2
        }
    }

    fileprivate var color: String {
        switch self {
        case .trace, .debug: "\u{1B}[2m"
        case .info: "\u{1B}[32m"
        case .notice: "\u{1B}[36m"
        case .warning: "\u{1B}[33m"
        case .error, .critical: "\u{1B}[31m"
        }
    }
}

public enum LogFormat: String, CaseIterable, Sendable {
    /// The format for the destination of standard error: see ``resolved(environment:)``.
    case auto
    /// For people: time, level, message, and the metadata as `key=value`.
    case text
    /// For programs: one JSON object per line.
    case json
    /// For systemd's journal: the priority, and text without the time, because the journal adds the time.
    case journal

    /// Resolves ``auto``: text on a terminal, the journal's format if systemd has connected standard error to its
    /// journal, otherwise JSON, which suits container runtimes.
    public func resolved(environment: [String: String]) -> LogFormat {
        guard self == .auto else { return self }
        if isatty(STDERR_FILENO) == 1 { return .text }
        return Self.isJournal(environment["JOURNAL_STREAM"]) ? .journal : .json
    }

    /// Returns true if standard error is the journal's stream. The variable alone is not enough: programs inherit it even if their output
    /// is redirected (systemd.exec(5), "$JOURNAL_STREAM").
    private static func isJournal(_ stream: String?) -> Bool {
        var status = stat()
        guard let stream, fstat(STDERR_FILENO, &status) == 0 else { return false }
        return stream == "\(status.st_dev):\(status.st_ino)"
    }
}

/// Escapes the characters that a log line must not contain.
public enum LogEscape {
    /// Returns untrusted text with unprintable characters as visible escapes.
    public static func escaped(_ text: String) -> String {
        var bytes: [UInt8] = []
        append(text, to: &bytes, quotes: false)
        return String(decoding: bytes, as: UTF8.self)
    }

    /// Appends a text.
    /// - Parameters:
    ///   - quotes: true if the text is between double quotes.
    ///   - isJSON: true if the text is read as JSON, which has fewer escapes.
    static func append(_ text: String, to line: inout [UInt8], quotes: Bool, isJSON: Bool = false) {
        for scalar in text.unicodeScalars {
            switch scalar {
            case "\"" where quotes, "\\" where quotes:
                line.append(UInt8(ascii: "\\"))
                line.append(UInt8(truncatingIfNeeded: scalar.value))
            case "\n": line += #"\n"#.utf8
            case "\r": line += #"\r"#.utf8
            case "\t": line += #"\t"#.utf8
            case _ where scalar.isUnprintable: line += scalar.jsonEscape.utf8
            default: line += UTF8.encode(scalar).map(Array.init) ?? []
            }
        }
    }
}

public struct LogTime: Sendable {
    /// Milliseconds since 1970.
    public var milliseconds: Int64

    /// - Parameter milliseconds: since 1970.
    public init(milliseconds: Int64) { self.milliseconds = milliseconds }

    public static var now: LogTime {
        var time = timespec()
        clock_gettime(CLOCK_REALTIME, &time)
        return LogTime(milliseconds: Int64(time.tv_sec) * 1000 + Int64(time.tv_nsec) / 1_000_000)
    }

    /// ISO 8601 in UTC with milliseconds, such as `2026-11-21T15:54:44.123Z`.
    public var text: String {
        var seconds = time_t(milliseconds / 1000)
        var parts = tm()
        gmtime_r(&seconds, &parts)
        let date = "\((Int(parts.tm_year) + 1900).digits(4))-\((parts.tm_mon + 1).digits(2))-\(parts.tm_mday.digits(2))"
        let time = "\(parts.tm_hour.digits(2)):\(parts.tm_min.digits(2)):\(parts.tm_sec.digits(2))"
        return "\(date)T\(time).\((milliseconds % 1000).digits(3))Z"
    }
}
