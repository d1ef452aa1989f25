import Foundation
import TestSupport
import Yams

/// The files of deploy/.
enum DeployFolder {
    static let root = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        .deletingLastPathComponent()

    static func url(_ name: String) -> URL { root.appending(path: "deploy/\(name)") }

    static func text(_ name: String) throws -> String { try String(contentsOf: url(name), encoding: .utf8) }

    /// Returns a parsed YAML file.
    static func yaml(_ name: String) throws -> YAMLNode { try YAMLNode(text(name), name) }

    /// Returns the settings of a unit in order, without the names of the sections.
    static func unit(_ name: String) throws -> [(key: String, value: String)] {
        try text("systemd/\(name)").split(separator: "\n").filter { !$0.hasPrefix("#") }.compactMap { line in
            let parts = line.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false).map(String.init)
            return parts.count == 2 ? (parts[0], parts[1]) : nil
        }
    }
}

/// A node of a YAML file. A missing node is an error that names its path.
struct YAMLNode {
    let node: Node
    let path: String

    init(_ text: String, _ name: String) throws {
        guard let node = try Yams.compose(yaml: text) else {
            throw ChildProcess.Failure(description: "\(name) is empty")
        }
        self.init(node: node, path: name)
    }

    private init(node: Node, path: String) {
        self.node = node
        self.path = path
    }

    /// Returns the node at a path of names separated by slashes; a number selects an element of a list.
    func at(_ names: String) throws -> YAMLNode {
        var place = self
        for name in names.split(separator: "/").map(String.init) {
            var next = place.node.mapping?[Node(name)]
            if let list = place.node.sequence, let index = Int(name), list.indices.contains(index) {
                next = list[index]
            }
            guard let next else { throw ChildProcess.Failure(description: "\(place.path) has no \(name)") }
            place = YAMLNode(node: next, path: "\(place.path)/\(name)")
        }
        return place
    }

    func text(_ names: String = "") throws -> String {
        let place = try at(names)
        guard let text = place.node.scalar?.string else {
            throw ChildProcess.Failure(description: "\(place.path) is no text")
        }
        return text
    }

    func number(_ names: String) throws -> Int {
        guard let number = Int(try text(names)) else {
            throw ChildProcess.Failure(description: "\(path)/\(names) is no number")
        }
        return number
    }

    func list(_ names: String = "") throws -> [YAMLNode] {
        let place = try at(names)
        guard let list = place.node.sequence else {
            throw ChildProcess.Failure(description: "\(place.path) is no list")
        }
        return list.enumerated().map { YAMLNode(node: $1, path: "\(place.path)/\($0)") }
    }

    /// Returns the names of a mapping's members.
    func keys(_ names: String = "") throws -> [String] {
        let place = try at(names)
        guard let mapping = place.node.mapping else {
            throw ChildProcess.Failure(description: "\(place.path) is no mapping")
        }
        return mapping.keys.compactMap(\.string)
    }

    /// Returns the members of a mapping whose values are strings.
    func texts(_ names: String = "") throws -> [String: String] {
        let place = try at(names)
        guard let mapping = place.node.mapping else {
            throw ChildProcess.Failure(description: "\(place.path) is no mapping")
        }
        return Dictionary(
            mapping.compactMap { key, value in key.string.flatMap { key in value.scalar.map { (key, $0.string) } } },
            uniquingKeysWith: { $1 })
    }
}
