import APNS
import PushWorker
import Redis

/// The effective settings, for printing.
struct EffectiveSettings {
    struct Line: Encodable, Equatable {
        /// The path in the file, joined with dots.
        var key: String
        var value: String
        /// The flag, the variable, or the file and line; `default` for a default.
        var source: String
        /// True if a running worker applies a changed value.
        var reloaded: Bool
    }

    private(set) var lines: [Line] = []
    /// The values by the paths of ``lines``, including secrets: for comparison, never for printing.
    private(set) var values: [String: (text: String, isReloadable: Bool)] = [:]

    init(_ settings: Settings, includesDefaults: Bool) throws {
        func add(_ key: Setting, _ value: SettingValue?, at parents: [String] = []) {
            guard let value, includesDefaults || value.place != .initial || !parents.isEmpty else { return }
            let path = (parents + key.path).joined(separator: ".")
            values[path] = (value.text, key.isReloadable)
            lines.append(
                Line(
                    key: path, value: Self.shown(value.text, key),
                    source: value.place.source, reloaded: key.isReloadable))
        }
        let apps = try settings.appNames
        let queuesOfFile = settings.queueNamesOfFile
        for key in Setting.all where key.canBeCommon && key != .appNames {
            if key == .queueNames, !queuesOfFile.isEmpty { continue }
            add(key, settings.value(key))
        }
        for queue in try QueueSettings(settings).all().map(\.keys.queue) {
            for key in Setting.all where key.scope == .queue {
                // Common values were added above.
                let isNamed = queuesOfFile.contains(queue) && !key.canBeCommon
                let value = isNamed ? settings.value(key, queue: queue) : settings.own(key, queue: queue)
                add(key, value, at: ["queues", queue])
            }
        }
        for app in apps {
            for key in Setting.all where key.scope == .app {
                add(key, settings.own(key, app: app), at: ["apps", app])
            }
        }
    }

    /// Returns a value without its secrets.
    private static func shown(_ text: String, _ key: Setting) -> String {
        guard key.isSecret else { return text }
        switch key {
        case .redisURL: return (try? RedisTopology(url: text)).map { "\($0)" } ?? "(hidden)"
        case .proxy: return text == "none" ? text : (try? HTTPProxy(text)).map { "\($0)" } ?? "(hidden)"
        default: return "(hidden)"
        }
    }

    // MARK: YAML

    /// Returns the settings as YAML, with the sources as comments.
    static func yaml(_ lines: [Line]) -> String {
        var rows: [(text: String, comment: String?)] = []
        var open: [String] = []
        for line in lines {
            let path = line.key.split(separator: ".", omittingEmptySubsequences: false).map(String.init)
            // An app's name may contain dots.
            let parents = self.parents(of: path)
            var common = 0
            while common < min(open.count, parents.count), open[common] == parents[common] { common += 1 }
            for (depth, parent) in parents.enumerated().dropFirst(common) {
                rows.append((indent(depth) + quoted(parent) + ":", nil))
            }
            open = parents
            let notes = [line.source, line.reloaded ? "(reloaded)" : nil].compactMap { $0 }
            rows.append(
                (
                    indent(parents.count) + (path.last ?? "") + ": " + quoted(line.value),
                    notes.joined(separator: " ")
                ))
        }
        let column = min(60, (rows.filter { $0.comment != nil }.map(\.text.count).max() ?? 0) + 2)
        return rows.map { row in
            guard let comment = row.comment else { return row.text + "\n" }
            return row.text + String(repeating: " ", count: max(1, column - row.text.count)) + "# \(comment)\n"
        }.joined()
    }

    private static func parents(of path: [String]) -> [String] {
        guard let first = path.first, ["apps", "queues"].contains(first) else { return path.dropLast() }
        // The setting itself is the longest known path at the end.
        let own = Setting.all.map(\.path).filter { path.count > $0.count + 1 && Array(path.suffix($0.count)) == $0 }
            .max { $0.count < $1.count }
        guard let own else { return path.dropLast() }
        let name = path[1..<(path.count - own.count)].joined(separator: ".")
        return [first, name] + own.dropLast()
    }

    private static func indent(_ depth: Int) -> String { String(repeating: "  ", count: depth) }

    /// Returns a YAML scalar: plain if that is unambiguous, otherwise in double quotes as in JSON.
    private static func quoted(_ text: String) -> String {
        let isPlain = text.utf8.allSatisfy {
            $0 &- 0x30 < 10 || ($0 | 0x20) &- 0x61 < 26
                || [0x25, 0x2D, 0x2E, 0x5F, 0x2F, 0x40, 0x2C, 0x28, 0x29].contains($0)
                || $0 == 0x3A
        }
        let isURLLike = !text.hasSuffix(":") && !text.contains(": ")
        if isPlain, isURLLike, let first = text.utf8.first, ![0x25, 0x2D, 0x40, 0x2C].contains(first) { return text }
        var quoted = "\""
        for scalar in text.unicodeScalars {
            switch scalar {
            case "\"": quoted += "\\\""
            case "\\": quoted += "\\\\"
            case _ where scalar.value < 0x20 || scalar.value == 0x7F:
                let hex = String(scalar.value, radix: 16)
                quoted += "\\x" + (hex.count == 1 ? "0" : "") + hex
            default: quoted.unicodeScalars.append(scalar)
            }
        }
        return quoted + "\""
    }
}
