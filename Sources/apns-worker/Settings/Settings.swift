import ArgumentParser
import FoundationEssentials
import NIOCore
import PrintableText
import PushJob
import Redis
import Synchronization
import TLS

/// The settings given by flags, variables and a file, in this order of precedence.
///
/// An app's or a queue's own value precedes the common one, regardless of where each is given.
struct Settings: Sendable {
    /// The path of the file; `nil` if there is none.
    let filePath: String?
    private let flags: [Setting: SettingValue]
    let variables: SettingsVariables
    private let file: SettingsFile?
    /// The time for which a command waits for Redis.
    var redisPatience = RedisPatience()

    /// - Parameters:
    ///   - filePath: the path of the configuration file, instead of `APNS_WORKER_CONFIG`.
    ///   - flags: the given flags.
    ///   - isSimulated: true to ignore the variables of ``Setting/replacedBySimulation``, regardless of their values.
    /// - Throws: all mistakes, one per line: `ValidationError` if only flags are wrong, otherwise ``CommandFailure``.
    init(
        filePath: String?, flags: [Setting: String], isSimulated: Bool = false,
        environment: [String: String] = ProcessInfo.processInfo.environment
    ) throws {
        let path = filePath ?? environment["APNS_WORKER_CONFIG"].flatMap { $0.isEmpty ? nil : $0 }
        self.filePath = path
        do {
            file = try path.map { try SettingsFile.read($0) }
        } catch {
            throw CommandFailure(.configuration, "\(error)")
        }
        variables = SettingsVariables(
            environment, apps: file?.appNames ?? [],
            queues: (file?.queueNames ?? []) + SettingsVariables.names(flags[.queueNames]),
            ignoring: isSimulated ? Set(Setting.replacedBySimulation) : [])
        let deeper = (file?.problems ?? []) + variables.problems
        var problems = deeper
        var values: [Setting: SettingValue] = [:]
        for (setting, text) in flags.sorted(by: { $0.key.name < $1.key.name }) {
            let flag = setting.flag ?? setting.name
            do {
                values[setting] = try SettingValue(text, of: setting, at: .flag(flag))
            } catch {
                problems.append("\(flag) \(error)")
            }
        }
        guard deeper.isEmpty else { throw CommandFailure(.configuration, problems.joined(separator: "\n")) }
        guard problems.isEmpty else { throw ValidationError(problems.joined(separator: "\n")) }
        self.flags = values
    }

    /// Advice about values that are accepted, as sentences.
    var warnings: [String] {
        flags.keys.filter(\.isSecret).sorted { $0.name < $1.name }.compactMap { setting in
            guard let flag = setting.flag, let text = flags[setting]?.text, text.hasSecrets else { return nil }
            let file = setting == .redisURL ? "?password_file=/path in the URL, or " : ""
            return "\(flag) has a password, which all users of this machine can read in the list of processes; use "
                + "\(file)the variable \(setting.variable)"
        }
    }

    // MARK: Values

    /// Returns the value of a setting and its place; `nil` if it is not given and has no default.
    func value(_ setting: Setting, app: String? = nil, queue: String? = nil) -> SettingValue? {
        given(setting, app: app, queue: queue)
            ?? setting.initial.map { SettingValue(text: setting.kind.text($0), content: $0, place: .initial) }
    }

    /// Returns the value of a setting and its place; `nil` if it is not given.
    func given(_ setting: Setting, app: String? = nil, queue: String? = nil) -> SettingValue? {
        own(setting, app: app, queue: queue)
            ?? (setting.canBeCommon ? flags[setting] ?? lookUp(setting.path) : nil)
    }

    func own(_ setting: Setting, app: String? = nil, queue: String? = nil) -> SettingValue? {
        if let app, setting.scope == .app { return lookUp(["apps", app] + setting.path) }
        if let queue, setting.scope == .queue { return lookUp(["queues", queue] + setting.path) }
        return nil
    }

    private func lookUp(_ path: [String]) -> SettingValue? {
        variables.values[Setting.variable(path)] ?? file?.values[path]
    }

    func text(_ setting: Setting, app: String? = nil, queue: String? = nil) -> String? {
        value(setting, app: app, queue: queue)?.text
    }

    /// Returns the number of a setting; for a duration, the milliseconds.
    func number(_ setting: Setting, app: String? = nil, queue: String? = nil) -> Int? {
        value(setting, app: app, queue: queue).flatMap { Int($0.content) }
    }

    /// Returns a secret that is in a file, or in another setting as base64.
    func secret(_ file: Setting, _ base64: Setting) throws -> SecretSource? {
        try SettingValue.secret(given(file), given(base64))
    }

    /// Writes the settings to the members of a configuration.
    func fill<Root: ConfigurationRoot>(_ configuration: inout Root, app: String? = nil, queue: String? = nil) {
        for setting in Setting.all {
            setting.write(value(setting, app: app, queue: queue)?.content, to: &configuration)
        }
    }

    /// Returns the places of settings that have no effect on a simulated APNs, such as `APNS_WORKER_KEY` and `worker.yaml:3`.
    func replacedBySimulation(environment: [String: String]) throws -> [String] {
        let apps: [String?] = [nil] + (try appNames)
        var places = Set(variables.ignored)
        for setting in Setting.replacedBySimulation {
            for app in apps { if let place = given(setting, app: app)?.place { places.insert(place.source) } }
        }
        for name in ["HTTPS_PROXY", "https_proxy"] where environment[name]?.isEmpty == false { places.insert(name) }
        return places.sorted()
    }

    // MARK: Names

    /// The names of the apps, in order; empty for a worker with a single unnamed app.
    var appNames: [String] {
        get throws {
            guard let list = given(.appNames) else {
                return try file?.appNames.map { try Self.checked($0, .appNames) } ?? []
            }
            let names = list.text.split(separator: ",").map(Self.trimmed)
            guard !names.isEmpty else { throw CommandFailure(.configuration, "\(list.place) names no app") }
            return try names.map { try Self.checked($0, .appNames) }
        }
    }

    /// The queues named by variables or the file.
    var configuredQueueNames: [String] {
        SettingsVariables.names(lookUp(Setting.queueNames.path)?.text) + (file?.queueNames ?? [])
    }

    /// The queues in the file's mapping, if nothing else names queues.
    var queueNamesOfFile: [String] { given(.queueNames) == nil ? file?.queueNames ?? [] : [] }

    /// True if a flag, a variable or the file names queues.
    var namesQueues: Bool { given(.queueNames) != nil || !queueNamesOfFile.isEmpty }

    private static func trimmed(_ text: Substring) -> String {
        String(text.drop { $0 == " " }.reversed().drop { $0 == " " }.reversed())
    }

    private static func checked(_ name: String, _ setting: Setting) throws -> String {
        let isPlain = name.utf8.allSatisfy {
            $0 &- 0x30 < 10 || ($0 | 0x20) &- 0x61 < 26 || $0 == 0x2D || $0 == 0x2E || $0 == 0x5F
        }
        guard isPlain, (1...64).contains(name.utf8.count) else {
            throw CommandFailure(
                .configuration,
                "\(setting.variable): \(name) is not a valid name for an app; it must be letters, digits, -, . and _")
        }
        return name
    }

    // MARK: Mistakes

    /// Returns the failure for a value given at a place: a usage error if the place is a flag.
    static func mistake(at place: String, _ sentence: String) -> CommandFailure {
        CommandFailure(place.hasPrefix("--") ? .usage : .configuration, "\(place): \(sentence)")
    }
}

/// The time for which a command waits for Redis.
struct RedisPatience: Sendable {
    static let standard = 10_000
    /// The time after which an unsuccessful attempt to connect is reported, in milliseconds.
    private static let silence = 500
    private static let hasReported = Atomic(false)

    /// The time in milliseconds.
    var milliseconds = standard

    /// Waits for a client. Reports the problem of the first attempt on standard error, once per process.
    /// - Parameter ready: waits for at most the given time.
    func wait(until ready: (TimeAmount) async throws -> Void) async throws {
        let first = min(Self.silence, milliseconds)
        do {
            return try await ready(.milliseconds(Int64(first)))
        } catch let error as RedisError {
            if case .authentication = error { throw error }
            guard first < milliseconds else { throw error }
            if !Self.hasReported.exchange(true, ordering: .relaxed) {
                Terminal.note("waiting up to \(DurationText.text(milliseconds)) for Redis: \(error)\n")
            }
        }
        try await ready(.milliseconds(Int64(milliseconds - first)))
    }
}
