import Logging
import PrintableText

/// One line of a log, and how it looks in each format. Whatever is in it, it stays one line, and nothing in it reaches a
/// terminal as a command: jobs' ids and servers' words are written by others.
struct LogLine {
    var time: LogTime
    var level: Logger.Level
    var label: String
    var message: String
    var metadata: Logger.Metadata

    /// Longer texts are cut: a line has to be read by somebody.
    private static let maximumLength = 8192

    /// The line with its line feed.
    /// - Parameter isColored: whether the level is colored, in text.
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

    /// As it is where it is one plain word, else in quotes.
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

    /// The names that every line has. Metadata of that name get an underscore, so that no name is there twice.
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
            // Cut or renamed, it might be one that is there already.
            var name = Self.cut(key)
            while !names.insert(name).inserted { name += "_" }
            line.append(UInt8(ascii: ","))
            Self.append(name, to: &line)
            line.append(UInt8(ascii: ":"))
            Self.append(value, to: &line)
        }
        line.append(UInt8(ascii: "}"))
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

    private static func cut(_ text: String) -> String {
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
