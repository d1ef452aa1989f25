import ArgumentParser
import Operations
import PrintableText

/// Numbers of jobs or dead letters by the members that `--by` names.
struct Counts<Group: RawRepresentable<String> & CaseIterable> {
    let groups: [Group]
    private var counts: [[String]: Int] = [:]

    init(by groups: [Group]) { self.groups = groups }

    var sum: Int { counts.values.reduce(0, +) }

    /// - Parameter value: returns the value of a member; `nil` if a row lacks it.
    mutating func add(_ count: Int = 1, _ value: (Group) -> String?) {
        counts[groups.map { value($0) ?? Self.none }, default: 0] += count
    }

    /// Prints the largest numbers first; without groups the sum.
    func print(isJSON: Bool) throws {
        guard !groups.isEmpty else {
            Terminal.print((isJSON ? try JSONLine.text(Line(count: sum)) : "\(sum)") + "\n")
            return
        }
        for (values, count) in counts.sorted(by: { ($1.value, $0.key.joined()) < ($0.value, $1.key.joined()) }) {
            let members = zip(groups, values).filter { $1 != Self.none }.map { ($0.rawValue, $1) }
            let line =
                isJSON
                ? try JSONLine.text(Line(count: count, members: members))
                : (["\(count)"] + values.map(\.printable)).joined(separator: "\t")
            Terminal.print(line + "\n")
        }
    }

    /// The text of a member without a value.
    private static var none: String { "-" }

    private struct Line: Encodable {
        let count: Int
        var members: [(name: String, value: String)] = []

        private struct Name: CodingKey {
            let stringValue: String
            var intValue: Int? { nil }

            init(stringValue: String) { self.stringValue = stringValue }
            init?(intValue: Int) { nil }
        }

        func encode(to encoder: any Encoder) throws {
            var object = encoder.container(keyedBy: Name.self)
            try object.encode(count, forKey: Name(stringValue: "count"))
            for (name, value) in members { try object.encode(value, forKey: Name(stringValue: name)) }
        }
    }
}

extension Counts {
    /// Reads the value of `--by`.
    /// - Parameter things: the things that are counted, for the error.
    static func groups(_ text: String, of things: String) throws -> [Group] {
        try text.split(separator: ",", omittingEmptySubsequences: false).map { name in
            guard let group = Group(rawValue: String(name)) else {
                let known = Group.allCases.map(\.rawValue).joined(separator: ", ")
                throw ValidationError("\(things) are counted by \(known), not by \(name)")
            }
            return group
        }
    }
}
