import PrintableText
import PushQueue

/// A thing that is listed and counted.
package protocol Counted: Shown {
    /// The plural of the thing, and an option that makes the list shorter.
    static var things: String { get }
    static var narrowing: String { get }
    /// The columns by which the things can be counted.
    static var groups: [String] { get }
    /// The labels of the thing's job; `nil` for things without labels.
    var labels: [String: String]? { get }
    /// Returns the value of a group; `nil` if it is unknown.
    func group(_ name: String) -> String?
}

extension Counted {
    package var labels: [String: String]? { nil }
    package func group(_ name: String) -> String? { value(of: name) }
    /// The group of a label, with the name of the label after the dot.
    static var labelGroup: String { "label.NAME" }
    static var hasLabels: Bool { groups.contains(labelGroup) }

    /// The columns by which the things can be counted, for help texts and errors.
    package static var groupsInWords: String { groups.joined(separator: ", ") }
}

/// Numbers of things by some of their columns.
package struct Counts<Row: Counted>: Sendable {
    package let groups: [String]
    // Values are compared by their bytes, because different names can look alike.
    private var counts: [[Name?]: Int] = [:]

    package init(by groups: [String]) { self.groups = groups }

    package var sum: Int { counts.values.reduce(0, +) }

    /// The numbers, the largest first.
    package var rows: [(values: [String?], count: Int)] {
        counts.map { (values: $0.key.map { $0?.text }, count: $0.value) }.sorted {
            ($1.count, $0.values.map { $0 ?? "-" }.joined()) < ($0.count, $1.values.map { $0 ?? "-" }.joined())
        }
    }

    package mutating func add(_ row: Row) {
        add(1) { $0.hasPrefix("label.") ? row.labels?[String($0.dropFirst(6))] : row.group($0) }
    }

    /// - Parameter value: returns the value of a column; `nil` if it is unknown.
    package mutating func add(_ count: Int, _ value: (String) -> String?) {
        counts[groups.map { value($0).map { Name($0) } }, default: 0] += count
    }

    /// Returns a row as a JSON object without unknown values.
    package func json(_ row: (values: [String?], count: Int)) -> String {
        let known = zip(groups, row.values).compactMap { name, value in value.map { (name, JSONLine.quoted($0)) } }
        let members = (known + [("count", "\(row.count)")]).sorted { $0.0 < $1.0 }.map {
            "\(JSONLine.quoted($0)):\($1)"
        }
        return "{\(members.joined(separator: ","))}"
    }

    package static func groups(_ text: String) throws(FieldMistake) -> [String] {
        var names: [String] = []
        for name in text.split(separator: ",", omittingEmptySubsequences: false).map(String.init) {
            let isLabel = Row.hasLabels && name.hasPrefix("label.") && name.count > 6
            guard name != Row.labelGroup, isLabel || Row.groups.contains(name) else {
                throw FieldMistake { _ in
                    "\(Row.things) are counted by \(Row.groupsInWords), not by \(name.printable)"
                }
            }
            names.append(name)
        }
        return names
    }
}
