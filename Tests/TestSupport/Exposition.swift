import Foundation

/// Prometheus' text format, parsed as strictly as the scraper does.
public struct Exposition {
    /// An error in a page.
    public struct Malformed: Error {
        /// The line.
        public let line: String
        /// The error.
        public let why: String
    }

    /// The metrics of one name.
    public struct Family {
        /// The value of `# TYPE`.
        public var type: String
        /// The value of `# HELP`.
        public var help: String?
        /// The lines.
        public var samples: [(name: String, labels: [String: String], value: Double)] = []
    }

    /// The names in their order in the page.
    public private(set) var names: [String] = []
    /// The metrics by name.
    public private(set) var families: [String: Family] = [:]

    /// Parses a page.
    /// - Throws: ``Malformed``.
    public init(_ text: String) throws {
        guard text.isEmpty || text.hasSuffix("\n") else { throw Malformed(line: "", why: "no line feed at the end") }
        // Once per page, because compiling them takes longer than a line.
        let sample = /([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)/
        let label = /([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\["\\n])*)"(?:,|$)/
        var help: (name: String, text: String)?
        for line in text.split(separator: "\n").map(String.init) {
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
                try add(line, sample, label)
            }
        }
    }

    /// Returns the value of a series; nil if there is none.
    public func value(_ name: String, _ labels: [String: String] = [:]) -> Double? {
        families.values.flatMap(\.samples).first { $0.name == name && $0.labels == labels }?.value
    }

    /// Returns the sum of all series of a metric that have these labels, among others.
    public func sum(_ name: String, _ labels: [String: String] = [:]) -> Double {
        families.values.flatMap(\.samples).reduce(0) { sum, sample in
            let fits = sample.name == name && labels.allSatisfy { sample.labels[$0.key] == $0.value }
            return fits ? sum + sample.value : sum
        }
    }

    private mutating func add(
        _ line: String, _ sample: Regex<(Substring, Substring, Substring?, Substring)>,
        _ pair: Regex<(Substring, Substring, Substring)>
    ) throws {
        guard let match = line.wholeMatch(of: sample), let value = Self.number(String(match.3))
        else { throw Malformed(line: line, why: "no sample") }
        guard let family = names.last, String(match.1).hasPrefix(family) else {
            throw Malformed(line: line, why: "not among its family")
        }
        var labels: [String: String] = [:]
        var rest = (match.2 ?? "")[...]
        while !rest.isEmpty {
            guard let label = rest.prefixMatch(of: pair) else {
                throw Malformed(line: line, why: "malformed labels")
            }
            guard labels.updateValue(Self.unescaped(String(label.2)), forKey: String(label.1)) == nil else {
                throw Malformed(line: line, why: "the same label twice")
            }
            rest = rest[label.range.upperBound...]
        }
        let name = String(match.1)
        guard families[family]?.samples.contains(where: { $0.name == name && $0.labels == labels }) == false else {
            throw Malformed(line: line, why: "the same series twice")
        }
        families[family]?.samples.append((name, labels, value))
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
