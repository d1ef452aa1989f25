import APNS
import FoundationEssentials
import PrintableText
import TLS

/// The settings of a YAML file, each with its line.
struct SettingsFile: Sendable {
    /// The path as given.
    let path: String
    /// The mistakes, each with its line.
    private(set) var problems: [String] = []
    /// The members of the mappings `apps` and `queues`.
    private(set) var appNames: [String] = []
    private(set) var queueNames: [String] = []
    /// Values by the paths of their keys.
    private(set) var values: [[String]: SettingValue] = [:]

    /// The maximum size in bytes, far beyond any configuration.
    private static let maximumSize = 1 << 20

    init(path: String, contents: [UInt8]) {
        self.path = path
        guard contents.count <= Self.maximumSize else {
            problems = ["\(path) is larger than 1 MiB, the maximum for a configuration"]
            return
        }
        guard String(validating: contents, as: UTF8.self) != nil else {
            problems = ["\(path) is not UTF-8"]
            return
        }
        do throws(YAMLNode.SyntaxError) {
            guard let root = try YAMLNode.document(contents), root.string?.isEmpty != true else { return }
            guard let mapping = root.mapping else {
                problems = ["\(path):1: the file must have keys with values, such as `log_level: info`"]
                return
            }
            read(mapping)
        } catch {
            let column = error.column.map { ":\($0): not valid YAML" } ?? ""
            problems = ["\(path):\(error.line)\(column): \(error.problem)"]
        }
    }

    static func read(_ path: String) throws(Mistake) -> SettingsFile {
        do {
            return SettingsFile(path: path, contents: [UInt8](try Data(contentsOf: URL(filePath: path))))
        } catch {
            throw Mistake(
                "cannot read the configuration file \(PathText.shown(path)): does it exist, and is it readable?")
        }
    }

    // MARK: Its members

    private mutating func read(_ root: [(key: YAMLNode, value: YAMLNode)]) {
        let known = Setting.all.filter { $0.canBeCommon && $0 != .appNames }
        for (key, value) in root {
            switch key.string {
            case "apps"?: appNames = readNamed(value, "apps", keys: Setting.all.filter { $0.scope == .app })
            case "queues"?: queueNames = readNamed(value, "queues", keys: Setting.all.filter { $0.scope == .queue })
            default: readMember(key, value, at: [], keys: known, names: ["apps", "queues"])
            }
        }
    }

    /// Reads a mapping of names to their settings.
    private mutating func readNamed(_ node: YAMLNode, _ parent: String, keys: [Setting]) -> [String] {
        guard let mapping = node.mapping else {
            guard !node.isNull else { return [] }
            report(node, "`\(parent)` must have names as its keys, each with settings of its own")
            return []
        }
        var names: [String] = []
        for (key, value) in mapping {
            guard let name = key.string, !name.isEmpty else {
                report(key, "a key of `\(parent)` must be a name")
                continue
            }
            names.append(name)
            guard let members = value.mapping else {
                if !value.isNull { report(value, "`\(parent).\(name)` must have keys with values") }
                continue
            }
            for (key, value) in members { readMember(key, value, at: [parent, name], keys: keys, names: []) }
        }
        return names
    }

    /// - Parameter path: the path of the app or queue that contains the member; empty for none.
    private mutating func readMember(
        _ key: YAMLNode, _ value: YAMLNode, at path: [String], inside: [String] = [], keys: [Setting], names: [String]
    ) {
        guard let name = key.string else { return report(key, "a key must be a word") }
        let own = inside + [name]
        if let setting = keys.first(where: { $0.path == own }) { return keep(value, of: setting, at: path) }
        if let secret = keys.first(where: { $0.isSecret && Self.fileForm($0.path) == own }) {
            return keepContents(value, of: secret, at: path)
        }
        let deeper = keys.filter { $0.path.count > own.count && Array($0.path.prefix(own.count)) == own }
        if !deeper.isEmpty {
            guard let mapping = value.mapping else {
                if value.isNull { return }
                let example = deeper.map(\.name).sorted()[0]
                return report(value, "`\(own.joined(separator: "."))` must have keys of its own, such as `\(example)`")
            }
            for (key, value) in mapping { readMember(key, value, at: path, inside: own, keys: deeper, names: []) }
            return
        }
        // Each name at this level, and whole paths as well: `redis_url` means `redis.url`.
        let siblings = Set(keys.compactMap { $0.path.count > inside.count ? $0.path[inside.count] : nil } + names)
        let nearest =
            keys.first { $0.path.joined(separator: "_") == own.joined(separator: "_") }?.name
            ?? name.nearest(of: siblings.sorted())
        let whole = (path + own).joined(separator: ".")
        report(key, "unknown setting `\(whole)`" + (nearest.map { "; did you mean `\($0)`?" } ?? ""))
    }

    private static func fileForm(_ path: [String]) -> [String] { path.dropLast() + [(path.last ?? "") + "_file"] }

    private mutating func keep(_ node: YAMLNode, of setting: Setting, at path: [String]) {
        let whole = (path + setting.path).joined(separator: ".")
        guard !node.isNull else { return }
        let text: String
        switch (node.content, setting.kind) {
        case (.scalar(let scalar, _), _): text = scalar
        case (.sequence(let items), .list):
            let texts = items.compactMap(\.string)
            guard texts.count == items.count, !texts.contains(where: { $0.contains(",") }) else {
                return report(node, "`\(whole)` must have texts without commas in its list")
            }
            text = texts.joined(separator: ",")
        default:
            let form = setting.kind == .list ? "text or a list of texts" : "a single value"
            return report(node, "`\(whole)` must be \(form)")
        }
        keep(text, of: setting, at: path, node)
    }

    private mutating func keepContents(_ node: YAMLNode, of setting: Setting, at path: [String]) {
        guard let file = node.string, !node.isNull else { return }
        do {
            keep(
                try SecretFile.text(file, itself: "`\((path + setting.path).joined(separator: "."))`"), of: setting,
                at: path, node)
        } catch {
            report(node, "`\((path + Self.fileForm(setting.path)).joined(separator: "."))`\(error)")
        }
    }

    private mutating func keep(_ text: String, of setting: Setting, at parents: [String], _ node: YAMLNode) {
        let path = parents + setting.path
        let whole = path.joined(separator: ".")
        do {
            values[path] = try SettingValue(
                text, of: setting, at: .file(path: self.path, line: node.line, name: whole))
        } catch {
            report(node, "`\(whole)` \(error)")
        }
    }

    private mutating func report(_ node: YAMLNode, _ problem: String) {
        problems.append("\(path):\(node.line): \(problem)")
    }
}

/// A setting whose value is the content of a file, as with mounted secrets.
enum SecretFile {
    /// Returns the file's text without the trailing line feed.
    /// - Parameter itself: the setting whose value is the text itself.
    /// - Throws: the problem, to be printed right after the name of the setting.
    static func text(_ path: String, itself: String) throws(Mistake) -> String {
        guard PathText.isPath(path) else {
            throw Mistake(" \(SettingKind.noPath(itself: itself))")
        }
        var bytes: [UInt8]
        do throws(SecretSource.Unreadable) {
            bytes = try SecretSource.file(path).read()
        } catch {
            throw Mistake(": \(error)")
        }
        while bytes.last == UInt8(ascii: "\n") || bytes.last == UInt8(ascii: "\r") { bytes.removeLast() }
        guard let text = String(validating: bytes, as: UTF8.self), !text.isEmpty else {
            throw Mistake(": \(path) is empty; write the secret into it")
        }
        return text
    }
}
