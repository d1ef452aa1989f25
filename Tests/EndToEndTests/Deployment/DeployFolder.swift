import Foundation
import TestSupport
import Yams

enum DeployFolder {
    static func url(_ name: String) -> URL { Repository.root.appending(path: "deploy/\(name)") }

    static func text(_ name: String) throws -> String { try Repository.text("deploy/\(name)") }

    static func yaml(_ name: String) throws -> YAMLNode { try YAMLNode(text(name), name) }

    /// Returns the settings of a systemd unit in order, without the names of its sections.
    static func unit(_ name: String) throws -> [(key: String, value: String)] {
        try text("systemd/\(name)").split(separator: "\n").filter { !$0.hasPrefix("#") }.compactMap { line in
            let parts = line.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false).map(String.init)
            return parts.count == 2 ? (parts[0], parts[1]) : nil
        }
    }
}

/// A node of a YAML file. If a node is missing, the error has its path.
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

    /// Returns the node at a path. Slashes separate names, and a number selects an element of a list.
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

    func text(_ names: String = "") throws -> String { try value(names, "text") { $0.scalar?.string } }

    func number(_ names: String) throws -> Int { try value(names, "number") { $0.scalar.flatMap { Int($0.string) } } }

    func list(_ names: String = "") throws -> [YAMLNode] {
        let path = try at(names).path
        return try value(names, "list") { $0.sequence }.enumerated().map { YAMLNode(node: $1, path: "\(path)/\($0)") }
    }

    func keys(_ names: String = "") throws -> [String] {
        try value(names, "mapping") { $0.mapping?.keys.compactMap(\.string) }
    }

    /// Returns the members of a mapping that are texts.
    func texts(_ names: String = "") throws -> [String: String] {
        let members = try value(names, "mapping") { $0.mapping }.compactMap { key, value in
            key.string.flatMap { key in value.scalar.map { (key, $0.string) } }
        }
        return Dictionary(members, uniquingKeysWith: { $1 })
    }

    func yaml() throws -> String { try Yams.serialize(node: node) }

    private func value<Value>(_ names: String, _ kind: String, _ get: (Node) -> Value?) throws -> Value {
        let place = try at(names)
        guard let value = get(place.node) else {
            throw ChildProcess.Failure(description: "\(place.path) is no \(kind)")
        }
        return value
    }
}
