import ArgumentParser
import Configuration
import FoundationEssentials
import Synchronization

/// What was given by flags, variables and a file, the first of them first.
///
/// What an app or a queue has of its own goes before what all have in common, wherever the two stand.
struct Settings: Sendable {
    /// The path of the file, where there is one.
    let filePath: String?
    private let flags: [SettingKey: String]
    private let variables: SettingsVariables
    private let file: SettingsFile?
    private let providers: [any ConfigProvider]

    /// - Parameters:
    ///   - filePath: of the configuration file, instead of what `APNS_WORKER_CONFIG` says.
    ///   - flags: those that were given.
    /// - Throws: `ValidationError` with everything that is wrong, a line each.
    init(
        filePath: String?, flags: [SettingKey: String],
        environment: [String: String] = ProcessInfo.processInfo.environment
    ) throws {
        let path = filePath ?? environment["APNS_WORKER_CONFIG"].flatMap { $0.isEmpty ? nil : $0 }
        self.filePath = path
        do {
            file = try path.map { try SettingsFile.read($0) }
        } catch {
            throw ValidationError("\(error)")
        }
        let variables = SettingsVariables(
            environment, apps: file?.appNames ?? [],
            queues: (file?.queueNames ?? []) + SettingsVariables.names(flags[.queueNames]))
        var problems = file?.problems ?? []
        problems += variables.problems
        for (key, text) in flags.sorted(by: { $0.key.name < $1.key.name }) {
            guard let problem = key.problem(with: text) else { continue }
            problems.append("\(key.flag ?? key.name) is \(text); \(problem)")
        }
        guard problems.isEmpty else { throw ValidationError(problems.joined(separator: "\n")) }

        self.flags = flags
        self.variables = variables
        let flagValues = flags.map { (AbsoluteConfigKey($0.key.path), ConfigValue(.string($0.value), isSecret: false)) }
        let flagProvider = InMemoryProvider(values: Dictionary(uniqueKeysWithValues: flagValues))
        let variableProvider = EnvironmentVariablesProvider(environmentVariables: variables.values.mapValues(\.text))
        // In capitals, so that the provider's own rule for names in camelCase has nothing to do.
        let mapped = KeyMappingProvider(upstream: variableProvider) { key in
            AbsoluteConfigKey([SettingKey.variable(key.components)])
        }
        let fileValues = (file?.values ?? [:]).map { path, value in
            (AbsoluteConfigKey(path), ConfigValue(.string(value.text), isSecret: false))
        }
        providers = [flagProvider, mapped, InMemoryProvider(values: Dictionary(uniqueKeysWithValues: fileValues))]
    }

    // MARK: Values

    /// What a setting is and where that stands; `nil` where it is not given and has no default.
    func value(_ key: SettingKey, app: String? = nil, queue: String? = nil) -> SettingValue? {
        given(key, app: app, queue: queue) ?? key.initial.map { SettingValue(text: $0, place: .initial) }
    }

    /// The same, but `nil` where it is not given.
    func given(_ key: SettingKey, app: String? = nil, queue: String? = nil) -> SettingValue? {
        own(key, app: app, queue: queue) ?? (key.canBeCommon ? lookUp(key.path, flag: key) : nil)
    }

    /// What an app or a queue has of its own.
    func own(_ key: SettingKey, app: String? = nil, queue: String? = nil) -> SettingValue? {
        if let app, key.scope == .app { return lookUp(["apps", app] + key.path) }
        if let queue, key.scope == .queue { return lookUp(["queues", queue] + key.path) }
        return nil
    }

    func text(_ key: SettingKey, app: String? = nil, queue: String? = nil) -> String? {
        value(key, app: app, queue: queue)?.text
    }

    /// A setting that is a number, and has a default or is given.
    func number(_ key: SettingKey, app: String? = nil, queue: String? = nil) -> Int? {
        // Whether it is one was looked at when all were read.
        text(key, app: app, queue: queue).flatMap { Int($0) }
    }

    private func lookUp(_ path: [String], flag: SettingKey? = nil) -> SettingValue? {
        let source = SourceReporter()
        let reader = ConfigReader(providers: providers, accessReporter: source)
        guard let text = reader.string(forKey: ConfigKey(path)) else { return nil }
        let places: [SettingPlace?] = [
            flag?.flag.map { .flag($0) }, variables.values[SettingKey.variable(path)]?.place, file?.values[path]?.place,
        ]
        return places[source.index].map { SettingValue(text: text, place: $0) }
    }

    // MARK: Names

    /// The names of the apps, in their order; empty for a worker with one that has no name.
    var appNames: [String] {
        get throws {
            guard let list = given(.appNames) else {
                return try file?.appNames.map { try Self.checked($0, .appNames) } ?? []
            }
            let names = list.text.split(separator: ",").map(Self.trimmed)
            guard !names.isEmpty else { throw ValidationError("\(list.place) is given, and names no app") }
            return try names.map { try Self.checked($0, .appNames) }
        }
    }

    /// The queues that are mapped in the file, where nothing else names queues.
    var queueNamesOfFile: [String] { given(.queueNames) == nil ? file?.queueNames ?? [] : [] }

    private static func trimmed(_ text: Substring) -> String {
        String(text.drop { $0 == " " }.reversed().drop { $0 == " " }.reversed())
    }

    private static func checked(_ name: String, _ key: SettingKey) throws -> String {
        let isPlain = name.utf8.allSatisfy {
            $0 &- 0x30 < 10 || ($0 | 0x20) &- 0x61 < 26 || $0 == 0x2D || $0 == 0x2E || $0 == 0x5F
        }
        guard isPlain, (1...64).contains(name.utf8.count) else {
            throw ValidationError(
                "\(key.variable): \(name) is no name for an app; it has to be letters, digits, -, . and _")
        }
        return name
    }
}

/// Notes which of the providers had a value.
private final class SourceReporter: AccessReporter {
    private let found = Mutex(0)

    var index: Int { found.withLock { $0 } }

    func report(_ event: AccessEvent) {
        // Providers are asked in turn, until one has it.
        found.withLock { $0 = max(0, event.providerResults.count - 1) }
    }
}
