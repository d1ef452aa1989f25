import Foundation

/// Prometheus' text format, parsed as strictly as the scraper does.
package struct Exposition {
    package struct Malformed: Error {
        package let line: String
        package let why: String
    }

    /// A metric: all series of one name.
    package struct Family {
        /// The value of `# TYPE`.
        package var type: String
        /// The value of `# HELP`.
        package var help: String?
        package var samples: [(name: String, labels: [String: String], value: Double)] = []
    }

    /// The names of the metrics, in the order of the page.
    package private(set) var names: [String] = []
    package private(set) var families: [String: Family] = [:]
    private var series: Set<Series> = []

    private struct Series: Hashable {
        let name: String
        let labels: [String: String]
    }

    package init(_ text: String) throws {
        guard text.isEmpty || text.hasSuffix("\n") else { throw Malformed(line: "", why: "no line feed at the end") }
        var help: (name: String, text: String)?
        for line in text.utf8.split(separator: UInt8(ascii: "\n")).map({ String(Substring($0)) }) {
            if line.hasPrefix("# HELP ") {
                let parts = line.dropFirst(7).split(separator: " ", maxSplits: 1).map(String.init)
                guard parts.count == 2 else { throw Malformed(line: line, why: "no help") }
                help = (parts[0], Self.unescaped(parts[1]))
            } else if line.hasPrefix("# TYPE ") {
                let parts = line.dropFirst(7).split(separator: " ").map(String.init)
                guard parts.count == 2, families[parts[0]] == nil else {
                    throw Malformed(line: line, why: "a second family of this name")
                }
                names.append(parts[0])
                families[parts[0]] = Family(type: parts[1], help: help?.name == parts[0] ? help?.text : nil)
                help = nil
            } else {
                try add(line)
            }
        }
    }

    /// Returns the value of the series with exactly these labels; `nil` if there is none.
    package func value(_ name: String, _ labels: [String: String] = [:]) -> Double? {
        families.values.flatMap(\.samples).first { $0.name == name && $0.labels == labels }?.value
    }

    /// Returns the sum of all series of a metric that have at least these labels.
    package func sum(_ name: String, _ labels: [String: String] = [:]) -> Double {
        families.values.flatMap(\.samples).reduce(0) { sum, sample in
            let fits = sample.name == name && labels.allSatisfy { sample.labels[$0.key] == $0.value }
            return fits ? sum + sample.value : sum
        }
    }

    /// Reads the bytes without regular expressions, because tests parse hundreds of pages with hundreds of lines while they wait.
    private mutating func add(_ line: String) throws {
        guard let space = line.utf8.lastIndex(of: UInt8(ascii: " ")),
            let value = Self.number(String(line[space...].dropFirst()))
        else { throw Malformed(line: line, why: "no sample") }
        let sample = line[..<space]
        let brace = sample.utf8.firstIndex(of: UInt8(ascii: "{"))
        let name = String(sample[..<(brace ?? space)])
        guard Self.isName(name, colons: true), brace == nil || sample.hasSuffix("}") else {
            throw Malformed(line: line, why: "no sample")
        }
        guard let family = names.last, name.hasPrefix(family) else {
            throw Malformed(line: line, why: "not among its family")
        }
        var labels: [String: String] = [:]
        let written = Array((brace.map { sample[$0...].dropFirst().dropLast() } ?? "").utf8)
        var place = 0
        while place < written.count {
            guard let label = Self.label(written, &place) else {
                throw Malformed(line: line, why: "malformed labels")
            }
            guard labels.updateValue(label.value, forKey: label.name) == nil else {
                throw Malformed(line: line, why: "the same label twice")
            }
        }
        guard series.insert(Series(name: name, labels: labels)).inserted else {
            throw Malformed(line: line, why: "the same series twice")
        }
        families[family]?.samples.append((name, labels, value))
    }

    /// Reads a label and the comma after it.
    /// - Parameters:
    ///   - bytes: the labels.
    ///   - place: the beginning of the label. Becomes the beginning of the next label.
    /// - Returns: the label; `nil` if it is malformed.
    private static func label(_ bytes: [UInt8], _ place: inout Int) -> (name: String, value: String)? {
        func next() -> UInt8? {
            guard place < bytes.count else { return nil }
            place += 1
            return bytes[place - 1]
        }
        let start = place
        while let byte = next(), byte != UInt8(ascii: "=") {}
        let name = String(decoding: bytes[start..<max(start, place - 1)], as: UTF8.self)
        guard isName(name, colons: false), next() == UInt8(ascii: "\"") else { return nil }
        var value: [UInt8] = []
        while let byte = next() {
            switch byte {
            case UInt8(ascii: "\""):
                let after = next()
                return after == nil || after == UInt8(ascii: ",") ? (name, String(decoding: value, as: UTF8.self)) : nil
            case UInt8(ascii: "\\"):
                switch next() {
                case UInt8(ascii: "n"): value.append(UInt8(ascii: "\n"))
                case let escaped? where escaped == byte || escaped == UInt8(ascii: "\""): value.append(escaped)
                default: return nil
                }
            default: value.append(byte)
            }
        }
        return nil
    }

    private static func isName(_ text: String, colons: Bool) -> Bool {
        guard let first = text.utf8.first, !(UInt8(ascii: "0")...UInt8(ascii: "9")).contains(first) else {
            return false
        }
        for byte in text.utf8 {
            switch byte {
            case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "_"):
                break
            default: if !colons || byte != UInt8(ascii: ":") { return false }
            }
        }
        return true
    }

    private static func number(_ text: String) -> Double? {
        switch text {
        case "+Inf": .infinity
        case "-Inf": -.infinity
        case "NaN": .nan
        default: Double(text)
        }
    }

    private static func unescaped(_ text: String) -> String {
        var (written, isEscaped) = ("", false)
        for character in text {
            if isEscaped {
                written.append(character == "n" ? "\n" : character)
                isEscaped = false
            } else if character == "\\" {
                isEscaped = true
            } else {
                written.append(character)
            }
        }
        return written
    }
}
