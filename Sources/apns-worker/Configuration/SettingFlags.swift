import ArgumentParser
import PushQueue
import PushWorker
import Redis

/// The sections of settings whose flags a group of options has.
protocol SettingFlagSections {
    static var sections: [Setting.Section] { get }
}

/// The flags of some settings, made of their definitions.
///
/// swift-argument-parser finds a type's options by reflection and decodes them by their names, so this type reflects one option
/// per setting.
struct SettingFlags<Sections: SettingFlagSections>: ParsableArguments, CustomReflectable {
    /// The flags that were given.
    private(set) var given: [Setting: String] = [:]

    private static var settings: [Setting] {
        Setting.all.filter { $0.flag != nil && Sections.sections.contains($0.section) }
    }

    init() {}

    init(from decoder: any Decoder) throws {
        let container = try decoder.container(keyedBy: Key.self)
        for setting in Self.settings {
            given[setting] = try container.decodeIfPresent(String.self, forKey: Key(setting))
        }
    }

    var customMirror: Mirror {
        Mirror(self, children: Self.settings.map { (Key($0).stringValue, Self.option($0)) })
    }

    private static func option(_ setting: Setting) -> Option<String?> {
        let initial = setting.shownDefault.map { setting.isRequired ? "; \($0)" : "; default: \($0)" } ?? ""
        return Option(
            name: .customLong(Key(setting).stringValue),
            help: ArgumentHelp(
                "\(setting.help) (\(setting.variable)\(initial))", valueName: setting.kind.valueName))
    }

    private struct Key: CodingKey {
        let stringValue: String
        var intValue: Int? { nil }

        init(_ setting: Setting) { stringValue = String((setting.flag ?? "").dropFirst(2)) }
        init?(stringValue: String) { self.stringValue = stringValue }
        init?(intValue: Int) { nil }
    }
}

enum RedisFlags: SettingFlagSections { static let sections = [Setting.Section.redis] }
enum QueueFlags: SettingFlagSections { static let sections = [Setting.Section.queues, .format] }
enum QueuesFlags: SettingFlagSections { static let sections = [Setting.Section.queues, .queueOrder, .format] }
enum AppFlags: SettingFlagSections { static let sections = [Setting.Section.app] }
enum GatewayFlags: SettingFlagSections { static let sections = [Setting.Section.gateway] }
enum FeedbackFlags: SettingFlagSections { static let sections = [Setting.Section.feedback] }
enum ChannelFlags: SettingFlagSections { static let sections = [Setting.Section.channels] }
enum WorkFlags: SettingFlagSections { static let sections = [Setting.Section.work, .kept] }
enum AdminFlags: SettingFlagSections { static let sections = [Setting.Section.admin] }

// MARK: - Groups of options

/// The configuration file.
struct ConfigurationOptions: ParsableArguments {
    @Option(
        name: .customLong("config"),
        help: """
            YAML file with settings; flags and variables override it. See `apns-worker config --help`. (APNS_WORKER_CONFIG)
            """)
    var file: String?

    /// The settings of a command.
    /// - Parameter flags: those that were given.
    func settings(_ flags: [Setting: String]...) throws -> Settings {
        try Settings(filePath: file, flags: flags.reduce(into: [:]) { $0.merge($1) { $1 } })
    }
}

/// The place of Redis.
struct RedisOptions: ParsableArguments {
    @OptionGroup var configuration: ConfigurationOptions
    @OptionGroup var flags: SettingFlags<RedisFlags>

    var given: [Setting: String] { flags.given }

    /// All settings of a command that has these flags only.
    func settings() throws -> Settings { try configuration.settings(given) }
}

/// An app, or the common settings of several.
struct AppOptions: ParsableArguments {
    @OptionGroup var flags: SettingFlags<AppFlags>
    @OptionGroup(title: "Binary gateway (--transport gateway)") var gateway: SettingFlags<GatewayFlags>

    var given: [Setting: String] { flags.given.merging(gateway.given) { $1 } }
}

/// The queues that a worker takes jobs from.
struct QueuesOptions: ParsableArguments {
    @OptionGroup var redis: RedisOptions
    @OptionGroup var flags: SettingFlags<QueuesFlags>

    var given: [Setting: String] { redis.given.merging(flags.given) { $1 } }
}

/// The queue that a command is about.
struct QueueOptions: ParsableArguments {
    @OptionGroup var redis: RedisOptions
    @OptionGroup var flags: SettingFlags<QueueFlags>

    /// All settings of a command that has these flags only.
    func settings() throws -> Settings { try redis.configuration.settings(redis.given, flags.given) }

    /// The queue with its settings.
    func only(_ settings: Settings) throws -> QueueConfiguration {
        let queues = try settings.queues()
        guard let only = queues.first, queues.count == 1 else {
            throw ValidationError("APNS_WORKER_QUEUE names \(queues.count) queues; choose one with --queue")
        }
        return only
    }

    /// Runs `body` with a connected client of the queue, which is closed afterwards.
    /// - Throws: the errors of `body`; an error of Redis as a usage error.
    func withClient(_ body: (RedisClient, QueueKeys) async throws -> Void) async throws {
        try await withClient(settings(), body)
    }

    /// The same for a command that has already read its settings.
    func withClient(
        _ settings: Settings, _ body: (RedisClient, QueueKeys) async throws -> Void
    ) async throws {
        let keys = try only(settings).keys
        try await settings.withClient(for: keys.jobs) { try await body($0, keys) }
    }
}
