import FoundationEssentials
import NIOCore
import PrintableText
import PushJob
import PushQueue

package enum Moment {
    /// The current time in milliseconds since 1970.
    package static var now: Int64 { Int64(Date().timeIntervalSince1970 * 1000) }

    /// Returns a time such as `2026-11-21T15:53:52Z`.
    package static func text(_ milliseconds: Int64) -> String {
        utcTime(milliseconds / 1000)
    }

    /// Returns an age such as `45s`, `3m`, `2h` or `12d`.
    package static func age(_ milliseconds: Int64) -> String {
        let seconds = max(0, milliseconds / 1000)
        return switch seconds {
        case ..<60: "\(seconds)s"
        case ..<3600: "\(seconds / 60)m"
        case ..<86400: "\(seconds / 3600)h"
        default: "\(seconds / 86400)d"
        }
    }
}

extension Int64 {
    /// Returns the milliseconds since another time, within the bounds of `Int64`, because times in Redis can be any number.
    package func since(_ time: Int64) -> Int64 {
        let (age, overflows) = subtractingReportingOverflow(time)
        // Both `.max` and `-.max` can be negated.
        return overflows ? (time < 0 ? .max : -.max) : Swift.max(age, -.max)
    }
}

extension String {
    /// Returns the string with spaces appended up to a width.
    package func padded(to width: Int) -> String { self + String(repeating: " ", count: max(0, width - count)) }

    /// The text with a capital letter, unless it begins with code.
    package var capitalizedFirst: String { prefix(1).uppercased() + dropFirst() }
}

package enum Words {
    /// Returns a number such as `1,204`.
    package static func number(_ value: Int) -> String { value.grouped }

    /// Returns a size such as `482 bytes`, `1.5 KiB` or `1,024.0 MiB`.
    package static func bytes(_ count: Int) -> String {
        guard count >= 1 << 10 else { return "\(count) bytes" }
        let (unit, name) = count >= 1 << 20 ? (1 << 20, "MiB") : (1 << 10, "KiB")
        let tenths = count / (unit / 10)
        return "\(number(tenths / 10)).\(tenths % 10) \(name)"
    }

    /// Returns a duration such as `850 ms`, `12 s`, `3 min`, `2 h 5 min` or `3 d 4 h`.
    package static func duration(_ milliseconds: Int64) -> String {
        let seconds = milliseconds / 1000
        switch seconds {
        case ..<1: return "\(max(0, milliseconds)) ms"
        case ..<120: return "\(seconds) s"
        case ..<7200: return "\(seconds / 60) min"
        case ..<172_800:
            let minutes = seconds / 60 % 60
            return "\(seconds / 3600) h" + (minutes > 0 ? " \(minutes) min" : "")
        default:
            let hours = seconds / 3600 % 24
            return "\(seconds / 86_400) d" + (hours > 0 ? " \(hours) h" : "")
        }
    }

    /// Returns ` for 3 min`, or nothing if the time is unknown.
    package static func since(_ time: Int64?, now: Int64) -> String {
        time.map { " for \(duration(max(0, now.since($0))))" } ?? ""
    }

    /// Returns hours, minutes and seconds in UTC.
    package static func clock(_ milliseconds: Int64) -> String {
        let seconds = milliseconds / 1000 % 86_400
        return [seconds / 3600, seconds / 60 % 60, seconds % 60].map { $0 < 10 ? "0\($0)" : "\($0)" }
            .joined(separator: ":")
    }

    /// Returns a rate, with one decimal below 10.
    package static func rate(_ value: Double) -> String {
        if value >= 10 { return number(Int(bounding: value)) }
        let tenths = Int(bounding: value * 10)
        return "\(tenths / 10).\(tenths % 10)"
    }

    /// Returns a short duration such as `12s`, `3m`, `2h` or `4d`.
    package static func brief(_ milliseconds: Int64) -> String {
        let seconds = milliseconds / 1000
        switch seconds {
        case ..<120: return "\(max(0, seconds))s"
        case ..<7200: return "\(seconds / 60)m"
        case ..<172_800: return "\(seconds / 3600)h"
        default: return "\(seconds / 86_400)d"
        }
    }

    /// Returns a number with its noun, such as `1 job` or `2,000 jobs`.
    package static func count(_ number: Int, _ noun: String) -> String {
        "\(Words.number(number)) \(noun)\(number == 1 ? "" : "s")"
    }

    /// Returns groups with their numbers, such as `12 BadPayload, 3 UnknownApp`.
    static func groups(_ groups: [String: Int]) -> String {
        groups.largestFirst.map { "\(Words.number($0.value)) \($0.key.printable)" }.joined(separator: ", ")
    }
}

/// Encodes values as a line of JSON.
package enum JSONLine {
    /// - Parameter keys: the spelling of the members' names.
    package static func text(
        _ value: some Encodable, keys: JSONEncoder.KeyEncodingStrategy = .useDefaultKeys
    ) throws -> String {
        let encoder = JSONEncoder()
        encoder.keyEncodingStrategy = keys
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        return escaped(String(decoding: try encoder.encode(value), as: UTF8.self))
    }

    /// Returns a text as a JSON string.
    package static func quoted(_ text: String) -> String {
        var json = ByteBuffer()
        json.writeJSONString(text)
        escape(&json, from: 0)
        return String(buffer: json)
    }

    /// Escapes like ``escaped(_:)``, but in place: the JSON from an index of a buffer to its end.
    static func escape(_ json: inout ByteBuffer, from start: Int) {
        let line = json.viewBytes(at: start, length: json.writerIndex - start)
        guard let line, line.contains(where: { $0 >= 0x7F }) else { return }
        let text = escaped(String(decoding: line, as: UTF8.self))
        json.moveWriterIndex(to: start)
        json.writeString(text)
    }

    /// Escapes the characters that could mislead the reader of a terminal. The value stays the same, because JSON has such characters only
    /// in strings.
    package static func escaped(_ json: String) -> String {
        guard json.utf8.contains(where: { $0 >= 0x7F }) else { return json }
        var text = String.UnicodeScalarView()
        for scalar in json.unicodeScalars {
            guard scalar.isUnprintable else {
                text.append(scalar)
                continue
            }
            text.append(contentsOf: scalar.jsonEscape.unicodeScalars)
        }
        return String(text)
    }
}
