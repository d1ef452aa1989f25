/// The settings among the environment's variables.
struct SettingsVariables: Sendable {
    /// Values by the names of the variables that they would stand in, and where they do.
    private(set) var values: [String: SettingValue] = [:]
    private(set) var problems: [String] = []

    /// - Parameters:
    ///   - environment: all variables; empty ones count as not given, which is how compose files and shells say that.
    ///   - apps: the names of the apps in the file.
    ///   - queues: the same of queues.
    init(_ environment: [String: String], apps: [String], queues: [String]) {
        let given = environment.filter { $0.key.hasPrefix(SettingKey.variablePrefix) && !$0.value.isEmpty }
        var known: [String: SettingKey] = [:]
        for key in SettingKey.all where key.canBeCommon { known[key.variable] = key }
        let namedApps = apps + Self.names(given[SettingKey.appNames.variable])
        let namedQueues = queues + Self.names(given[SettingKey.queueNames.variable])
        for (parent, names, scope) in [
            ("apps", namedApps, SettingKey.Scope.app), ("queues", namedQueues, .queue),
        ] {
            for name in names {
                for key in SettingKey.all where key.scope == scope {
                    known[SettingKey.variable([parent, name] + key.path)] = key
                }
            }
        }
        let toNowhere: Set = ["APNS_WORKER_CONFIG"]
        for (name, text) in given.sorted(by: { $0.key < $1.key }) where !toNowhere.contains(name) {
            if let key = known[name] {
                keep(text, name, key, at: name)
            } else if name.hasSuffix("_FILE"), let key = known[String(name.dropLast(5))], key.isSecret {
                keepContents(of: text, name, key, given)
            } else if !Self.isOfKubernetes(name) {
                let nearest = NearestName.of(name, among: known.keys.sorted())
                problems.append(
                    "the environment variable \(name) is no setting" + (nearest.map { "; did you mean \($0)?" } ?? ""))
            }
        }
    }

    private mutating func keep(_ text: String, _ variable: String, _ key: SettingKey, at place: String) {
        if let problem = key.problem(with: text) {
            problems.append("\(place) is \(key.isSecret ? "wrong" : text); \(problem)")
        } else {
            values[variable] = SettingValue(text: text, place: .variable(place))
        }
    }

    private mutating func keepContents(
        of path: String, _ name: String, _ key: SettingKey, _ given: [String: String]
    ) {
        let variable = String(name.dropLast("_FILE".count))
        guard given[variable] == nil else {
            problems.append("\(variable) and \(name) are both given: leave one out")
            return
        }
        do {
            keep(try SecretFile.text(path), variable, key, at: name)
        } catch {
            problems.append("\(name): \(error)")
        }
    }

    /// The names in a list of apps, or of queues with their weights.
    static func names(_ list: String?) -> [String] {
        (list ?? "").split(separator: ",").map { item in
            let name = item.lastIndex(of: ":").map { item[..<$0] } ?? item
            return String(name.filter { $0 != " " })
        }
    }

    /// Kubernetes tells each container of each service in variables of this form; one may be called apns-worker.
    private static func isOfKubernetes(_ name: String) -> Bool {
        let rest = name.dropFirst(SettingKey.variablePrefix.count)
        // …_SERVICE_HOST, …_SERVICE_PORT, …_SERVICE_PORT_<name>, …_PORT, …_PORT_<number>_TCP…
        guard !rest.hasSuffix("SERVICE_HOST"), !rest.contains("SERVICE_PORT") else { return true }
        guard let port = rest.range(of: "PORT") else { return false }
        let behind = rest[port.upperBound...]
        return behind.isEmpty || behind.dropFirst().first?.isNumber == true
    }
}
