import PrintableText

/// The settings among the environment variables.
struct SettingsVariables: Sendable {
    /// The variable with the secret of `results --webhook`; it is not a setting.
    static let webhookSecret = "APNS_WORKER_WEBHOOK_SECRET"
    /// The variable that replaces ``QueueLimits/steadyTime``. Only tests set it, so that they need not wait for that time.
    static let testSteadyTime = "APNS_WORKER_TEST_STEADY_TIME"

    /// Values by the names of their variables, without the suffix `_FILE` of variables that name a file.
    private(set) var values: [String: SettingValue] = [:]
    /// The value of ``testSteadyTime``, in milliseconds.
    private(set) var steadyTime: Int?
    private(set) var problems: [String] = []
    /// The names of variables that are ignored.
    private(set) var ignored: [String] = []

    /// - Parameters:
    ///   - environment: all variables; empty ones count as not given, as is usual in compose files and shells.
    ///   - apps: the names of the apps in the file.
    ///   - queues: the names of the queues in the file.
    ///   - ignoring: the settings whose variables are ignored.
    init(_ environment: [String: String], apps: [String], queues: [String], ignoring: Set<Setting> = []) {
        let given = environment.filter { $0.key.hasPrefix(Setting.variablePrefix) && !$0.value.isEmpty }
        var known: [String: Setting] = [:]
        for key in Setting.all where key.canBeCommon { known[key.variable] = key }
        let namedApps = apps + Self.names(given[Setting.appNames.variable])
        let namedQueues = queues + Self.names(given[Setting.queueNames.variable])
        for (parent, names, scope) in [
            ("apps", namedApps, Setting.Scope.app), ("queues", namedQueues, .queue),
        ] {
            for name in names {
                for key in Setting.all where key.scope == scope {
                    known[Setting.variable([parent, name] + key.path)] = key
                }
            }
        }
        if let text = given[Self.testSteadyTime] {
            steadyTime = Int(text)
            if steadyTime == nil { problems.append("\(Self.testSteadyTime) must be a number of milliseconds") }
        }
        let toNowhere: Set = ["APNS_WORKER_CONFIG", Self.webhookSecret, Self.testSteadyTime]
        for (name, text) in given.sorted(by: { $0.key < $1.key }) where !toNowhere.contains(name) {
            let setting = known[name] ?? (name.hasSuffix("_FILE") ? known[String(name.dropLast(5))] : nil)
            if let setting, ignoring.contains(setting) {
                ignored.append(name)
            } else if let key = known[name] {
                keep(text, name, key, at: name)
            } else if name.hasSuffix("_FILE"), let key = known[String(name.dropLast(5))], key.isSecret {
                keepContents(of: text, name, key, given)
            } else if !Self.isOfKubernetes(name) {
                // Several variables begin with `APNS_WORKER_REDIS`; the first is suggested.
                let group = Setting.all.first { $0.variable.hasPrefix(name + "_") }?.variable
                let nearest = group ?? name.nearest(of: known.keys.sorted())
                problems.append(
                    "unknown environment variable \(name)" + (nearest.map { "; did you mean \($0)?" } ?? ""))
            }
        }
    }

    private mutating func keep(_ text: String, _ variable: String, _ key: Setting, at place: String) {
        do {
            values[variable] = try SettingValue(text, of: key, at: .variable(place))
        } catch {
            problems.append("\(place) \(error)")
        }
    }

    private mutating func keepContents(
        of path: String, _ name: String, _ key: Setting, _ given: [String: String]
    ) {
        let variable = String(name.dropLast("_FILE".count))
        guard given[variable] == nil else {
            problems.append("\(variable) and \(name) are both set; omit one of them")
            return
        }
        do {
            keep(try SecretFile.text(path, itself: variable), variable, key, at: name)
        } catch {
            problems.append("\(name)\(error)")
        }
    }

    /// Returns the names in a list of apps, or of queues with their weights.
    static func names(_ list: String?) -> [String] {
        (list ?? "").split(separator: ",").map { item in
            let name = item.lastIndex(of: ":").map { item[..<$0] } ?? item
            return String(name.filter { $0 != " " })
        }
    }

    /// True for a variable that Kubernetes defines for a service, which may be called apns-worker.
    private static func isOfKubernetes(_ name: String) -> Bool {
        let rest = name.dropFirst(Setting.variablePrefix.count)
        // …_SERVICE_HOST, …_SERVICE_PORT, …_SERVICE_PORT_<name>, …_PORT, …_PORT_<number>_TCP…
        guard !rest.hasSuffix("SERVICE_HOST"), !rest.contains("SERVICE_PORT") else { return true }
        guard let port = rest.firstRange(of: "PORT") else { return false }
        let behind = rest[port.upperBound...]
        return behind.isEmpty || behind.dropFirst().first?.isNumber == true
    }
}
