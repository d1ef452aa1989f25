import ArgumentParser
import PushJob
import PushQueue
import PushWorker
import Redis

/// The sections of settings for which a group of options has flags.
protocol SettingFlagSections {
    static var sections: [Setting.Section] { get }
    /// True for a command's group that includes `--config`.
    static var haveFile: Bool { get }
    /// True for a command's group that includes `--timeout`: for commands that wait for Redis.
    static var haveTimeout: Bool { get }
    /// True for the settings that the command is about: `--help` shows all of them. Of other settings, it shows only the
    /// ``Setting/bestKnown``.
    static var showsAll: Bool { get }
    /// Returns the help of a setting whose meaning for the command differs from that for a worker.
    static func help(of setting: Setting) -> String?
}

extension SettingFlagSections {
    static var haveFile: Bool { false }
    static var haveTimeout: Bool { false }
    static var showsAll: Bool { true }
    static func help(of setting: Setting) -> String? { nil }
}

/// The flags of some settings, created from their definitions, and `--config`.
///
/// swift-argument-parser finds a type's options by reflection and decodes them by their names, so this type reflects one option per
/// setting. Commands include it directly where possible, because a debug build of the parser validates a group several times for each group
/// around it.
struct SettingFlags<Sections: SettingFlagSections>: ParsableArguments, CustomReflectable {
    /// The configuration file, if one was given.
    private(set) var file: String?
    var given: [Setting: String] = [:]
    private var timeoutText: String?
    /// The time to wait for Redis in milliseconds, if one was given.
    private(set) var timeout: Int?

    private static var settings: [Setting] {
        Setting.all.filter { $0.flag != nil && Sections.sections.contains($0.section) }
    }

    init() {}

    init(from decoder: any Decoder) throws {
        let container = try decoder.container(keyedBy: Key.self)
        if Sections.haveFile { file = try container.decodeIfPresent(String.self, forKey: .file) }
        if Sections.haveTimeout { timeoutText = try container.decodeIfPresent(String.self, forKey: .timeout) }
        for setting in Self.settings {
            given[setting] = try container.decodeIfPresent(String.self, forKey: Key(setting))
        }
    }

    // Throws in `validate`, because the parser replaces errors that are thrown while it decodes.
    mutating func validate() throws {
        timeout = try timeoutText.map { try DurationText.option($0, "--timeout", 1...86_400) }
    }

    var customMirror: Mirror {
        let file = Sections.haveFile ? [(Key.file.stringValue, Self.fileOption)] : []
        let timeout = Sections.haveTimeout ? [(Key.timeout.stringValue, Self.timeoutOption)] : []
        return Mirror(self, children: file + Self.settings.map { (Key($0).stringValue, Self.option($0)) } + timeout)
    }

    private static var fileOption: Option<String?> {
        Option(
            name: .customLong(Key.file.stringValue),
            help: ArgumentHelp(
                """
                YAML file with settings, which `apns-worker help settings` lists; flags and variables override it. \
                (APNS_WORKER_CONFIG)
                """, valueName: "file"))
    }

    private static var timeoutOption: Option<String?> {
        Option(
            name: .customLong(Key.timeout.stringValue),
            help: ArgumentHelp("Maximum time to wait for Redis. (default: 10s)", valueName: "duration"))
    }

    private static func option(_ setting: Setting) -> Option<String?> {
        let initial = setting.shownDefault.map { setting.isRequired ? "; \($0)" : "; default: \($0)" } ?? ""
        return Option(
            name: .customLong(Key(setting).stringValue),
            help: ArgumentHelp(
                "\(Sections.help(of: setting) ?? setting.help) (\(setting.variable)\(initial))",
                valueName: setting.valueName,
                visibility: Sections.showsAll || Setting.bestKnown.contains(setting) ? .default : .hidden))
    }

    private struct Key: CodingKey {
        let stringValue: String
        var intValue: Int? { nil }

        static var file: Self { Self(stringValue: "config") }
        static var timeout: Self { Self(stringValue: "timeout") }

        init(_ setting: Setting) { stringValue = String((setting.flag ?? "").dropFirst(2)) }
        init(stringValue: String) { self.stringValue = stringValue }
        init?(intValue: Int) { nil }
    }
}

/// The connection to Redis.
typealias RedisOptions = SettingFlags<RedisFlags>
/// The queues of a command, and their Redis.
typealias QueueOptions = SettingFlags<QueueFlags>
/// The queues from which a worker claims jobs, and their Redis.
typealias QueuesOptions = SettingFlags<QueuesFlags>
/// An app, or the common settings of several apps.
typealias AppOptions = SettingFlags<AppFlags>

enum RedisFlags: SettingFlagSections {
    static let sections = [Setting.Section.redis]
    static let haveFile = true
    static let haveTimeout = true
    static let showsAll = false
}
enum QueueFlags: SettingFlagSections {
    static let sections = [Setting.Section.redis, .queues, .format]
    static let haveFile = true
    static let haveTimeout = true
    static let showsAll = false
    static func help(of setting: Setting) -> String? {
        setting == .queueNames ? "The queue, or several such as critical,default." : nil
    }
}
/// The settings of `feedback`, which has its own options for waiting times.
enum FeedbackRedisFlags: SettingFlagSections {
    static let sections = [Setting.Section.redis]
    static let haveFile = true
    static let showsAll = false
}
/// The settings of a worker, for a command whose `--help` shows only the ``Setting/bestKnown``.
enum WorkerFlags<Sections: SettingFlagSections>: SettingFlagSections {
    static var sections: [Setting.Section] { Sections.sections }
    static var haveFile: Bool { Sections.haveFile }
    static var haveTimeout: Bool { Sections.haveTimeout }
    static var showsAll: Bool { false }
}
enum QueuesFlags: SettingFlagSections {
    static let sections = [Setting.Section.redis, .queues, .queueOrder, .format]
    static let haveFile = true
}
enum AppFlags: SettingFlagSections { static let sections = [Setting.Section.app] }
enum GatewayFlags: SettingFlagSections { static let sections = [Setting.Section.gateway] }
enum FeedbackFlags: SettingFlagSections { static let sections = [Setting.Section.feedback] }
enum ChannelFlags: SettingFlagSections {
    static let sections = [Setting.Section.channels]
    static let haveFile = true
}
enum WorkFlags: SettingFlagSections { static let sections = [Setting.Section.work, .kept] }
enum AdminFlags: SettingFlagSections { static let sections = [Setting.Section.admin] }
enum HealthFlags: SettingFlagSections {
    static let sections = [Setting.Section.admin]
    static let haveFile = true
}

extension SettingFlags {
    /// Reads all settings of a command that has these flags and `others`.
    /// - Parameters:
    ///   - isSimulated: true with `run --simulate`.
    ///   - warns: true to print ``Settings/warnings`` on standard error, once.
    func settings(
        _ others: [Setting: String]..., isSimulated: Bool = false, warns: Bool = true
    ) throws -> Settings {
        var settings = try Settings(
            filePath: file, flags: others.reduce(into: given) { $0.merge($1) { $1 } }, isSimulated: isSimulated)
        if let timeout { settings.redisPatience.milliseconds = timeout }
        if warns { for warning in settings.warnings { Terminal.noteOnce("warning: \(warning)\n") } }
        return settings
    }
}

extension QueueOptions {
    /// Returns the only queue, with its settings.
    func only(_ settings: Settings) throws -> QueueConfiguration {
        let queues = try QueueSettings(settings).all()
        guard let only = queues.first, queues.count == 1 else {
            let place = settings.given(.queueNames)?.place.description ?? "the configuration"
            throw ValidationError("\(place) names \(queues.count) queues; choose one with --queue")
        }
        return only
    }

    /// Returns the queue for jobs of a producer: `default`, if the configuration has several.
    func ofJobs(_ settings: Settings) throws -> QueueConfiguration {
        if given[.queueNames] == nil,
            let common = try QueueSettings(settings).all().first(where: { $0.keys.queue == "default" })
        {
            return common
        }
        return try only(settings)
    }
}
