/// The labels of one series, sorted by name, in the form in which they are written.
struct MetricLabels: Hashable, Comparable, Sendable {
    /// `name="value",…`, escaped, without braces; empty where there are no labels.
    let text: String

    static let none = MetricLabels([])

    init(_ dimensions: [(String, String)]) {
        var named: [String: String] = [:]
        // A label that is there twice would make the whole page unreadable: the last one counts.
        for (name, value) in dimensions { named[Self.name(name)] = value }
        text = named.sorted { $0.key < $1.key }
            .map { "\($0.key)=\"\(Self.escaped($0.value))\"" }.joined(separator: ",")
    }

    /// `name{labels}`, with another label behind them where one is given.
    func written(after name: String, _ more: String = "") -> String {
        let all = text.isEmpty ? more : more.isEmpty ? text : "\(text),\(more)"
        return all.isEmpty ? name : "\(name){\(all)}"
    }

    static func < (one: MetricLabels, other: MetricLabels) -> Bool { one.text < other.text }

    /// A label's name as Prometheus allows it; `le` is a histogram's own.
    private static func name(_ given: String) -> String {
        let name = MetricText.name(given, allowsColon: false)
        return name == "le" ? "le_" : name
    }

    private static func escaped(_ value: String) -> String {
        var text = ""
        for character in value.unicodeScalars {
            switch character {
            case "\\": text += "\\\\"
            case "\"": text += "\\\""
            case "\n": text += "\\n"
            default: text.unicodeScalars.append(character)
            }
        }
        return text
    }
}
