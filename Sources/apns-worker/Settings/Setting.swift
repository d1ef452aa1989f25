import PrintableText
import PushJob

/// A setting: its names, its values, and its effect. All settings are in ``Setting/all``.
///
/// In the file, a setting is found by its path (`redis.url` is `url` in the mapping `redis`); in the environment, by `APNS_WORKER_` and the
/// path in capitals with `_` instead of dots; on the command line, by `--` and the path with hyphens.
struct Setting: Sendable {
    /// A group of settings, with one title in `--help` and in the documentation's table.
    enum Section: String, CaseIterable, Sendable {
        case redis = "Redis"
        case queues = "Queues"
        case queueOrder = "Order of queues"
        case format = "Job format"
        case app = "Apps"
        case gateway = "Binary gateway"
        case feedback = "Feedback service"
        case channels = "Broadcast channels"
        case work = "Work"
        case kept = "Results and dead letters"
        case admin = "Metrics and traces"

        var scope: Scope {
            switch self {
            case .app, .gateway, .feedback, .channels: .app
            case .format, .kept: .queue
            case .redis, .queues, .queueOrder, .work, .admin: .worker
            }
        }
    }

    enum Scope: Sendable {
        /// One value for the whole worker.
        case worker
        /// Each app's own (`apps.<name>.…`), or common to the apps without their own value.
        case app
        /// Each queue's own (`queues.<name>.…`), or common to the queues without their own value.
        case queue
    }

    let path: [String]
    /// The name in the environment.
    let variable: String
    let kind: SettingKind
    let section: Section
    /// A sentence that describes the setting.
    let help: String
    /// The default value; `nil` if there is none.
    let initial: SettingContent?
    /// The behaviour without a value, in words, if there is no default.
    let otherwise: String?
    /// True for a secret, which is never printed.
    let isSecret: Bool
    /// True if a running worker applies a changed value.
    let isReloadable: Bool
    let flag: String?
    /// True if the setting can be given for all apps or queues at once.
    let canBeCommon: Bool
    /// The ``SettingMember`` that gets the value, if there is one.
    private var member: (any Sendable)?
    /// The unit of the member, if it differs from the unit of ``SettingContent``.
    private var memberUnit: DurationUnit?

    /// Creates a setting that ``Settings`` reads by name.
    /// - Parameters:
    ///   - isReloadable: by default true for the settings of apps.
    ///   - flag: replaces the flag that is derived from the path.
    init(
        _ path: String, _ kind: SettingKind, _ section: Section, _ help: String, initial: SettingContent? = nil,
        otherwise: String? = nil, isSecret: Bool = false, isReloadable: Bool? = nil, hasFlag: Bool = true,
        flag: String? = nil, canBeCommon: Bool = true
    ) {
        let members = path.split(separator: ".").map(String.init)
        self.path = members
        variable = Self.variable(members)
        self.kind = kind
        self.section = section
        self.help = help
        self.initial = initial
        self.otherwise = otherwise
        self.isSecret = isSecret
        self.isReloadable = isReloadable ?? (section.scope == .app)
        let name = path.map { $0 == "." || $0 == "_" ? "-" : String($0) }.joined()
        self.flag = hasFlag ? "--" + (flag ?? name) : nil
        self.canBeCommon = canBeCommon
    }

    /// Creates a setting that sets a member of a configuration, whose value is the default.
    /// - Parameters:
    ///   - keyPath: the member.
    ///   - stored: the unit of a duration in the member, if it differs from that of a bare number.
    ///   - initial: the default, if it is not the member's.
    init<Root: ConfigurationRoot, Value: SettingValueType>(
        _ path: String, _ kind: SettingKind, _ section: Section, to keyPath: WritableKeyPath<Root, Value> & Sendable,
        stored: DurationUnit? = nil, _ help: String, initial: SettingContent? = nil, otherwise: String? = nil,
        isReloadable: Bool? = nil
    ) {
        let unit: DurationUnit? = if case .duration(let bare, _) = kind { stored ?? bare } else { nil }
        let scale = unit?.milliseconds ?? 1
        // Values of a setting that is declared wrongly would be ignored without an error.
        assert(section.scope == .worker || section.scope == Root.scope, "\(path) has another scope than its member")
        assert(
            kind.examples.allSatisfy { Value($0.divided(by: scale)) != nil },
            "\(path) has another kind than its member")
        self.init(
            path, kind, section, help,
            initial: initial ?? Root.initial[keyPath: keyPath].content?.multiplied(by: scale),
            otherwise: otherwise, isReloadable: isReloadable)
        memberUnit = unit
        member = SettingMember<Root> { content, root in
            guard let value = Value(content.divided(by: scale)) else { return }
            root[keyPath: keyPath] = value
        }
    }

    /// Writes a value to its member, if `Root` has the member.
    func write<Root: ConfigurationRoot>(_ content: @autoclosure () -> SettingContent?, to root: inout Root) {
        guard let member = member as? SettingMember<Root>, let content = content() else { return }
        member.write(content, &root)
    }

    var scope: Scope { section.scope }

    // MARK: Names

    /// The name in the file, with dots.
    var name: String { path.joined(separator: ".") }

    /// Returns the name of a path in the environment.
    static func variable(_ path: [String]) -> String {
        variablePrefix
            + path.map { part in part.uppercased().map { $0.isLetter || $0.isNumber ? String($0) : "_" }.joined() }
            .joined(separator: "_")
    }

    static let variablePrefix = "APNS_WORKER_"

    // MARK: Texts

    /// The default as shown in `--help` and the documentation.
    var shownDefault: String? { initial.map { kind.text($0) } ?? otherwise }

    /// The placeholder of the value in `--help`.
    var valueName: String? {
        if let name = kind.valueName { return name }
        return switch path.last {
        case "url", "proxy": "url"
        case "ca", "certificate", "certificate_key", "key", "next_key", "certificate_passphrase_file", "headers_file":
            "file"
        case "key_id", "next_key_id", "team_id": "id"
        case "endpoint", "feedback_endpoint", "management_endpoint": "server"
        case "queue": "names"
        case "list": "key"
        case "job_class": "classes"
        case "log_level": "level"
        case "host": "address"
        default: nil
        }
    }

    /// True if some workers cannot start without the setting; ``shownDefault`` names these workers.
    var isRequired: Bool { otherwise?.hasPrefix("required") ?? false }

    // MARK: Values

    /// Refuses a value in quotation marks, which Docker keeps in files of variables, and control characters.
    func refuseQuotes(_ text: String) throws(Mistake) {
        let (first, last) = (text.first, text.last)
        // A password can have any characters.
        let canBeQuoted = isSecret && self != .redisURL && !name.hasSuffix("base64")
        if !canBeQuoted, text.count >= 2, first == last, first == "\"" || first == "'" {
            throw Mistake("is in quotation marks, which would be a part of the value; remove them")
        }
        if text.unicodeScalars.contains(where: { $0.value < 0x20 && $0 != "\n" && $0 != "\r" && $0 != "\t" }) {
            throw Mistake("has a control character")
        }
        if text.unicodeScalars.first == "\u{FEFF}" {
            throw Mistake("begins with a byte order mark; remove it")
        }
    }

    /// Reads a value.
    /// - Throws: the problem, to be printed after the setting's name.
    func content(_ text: String) throws(Mistake) -> SettingContent {
        if kind == .file {
            guard PathText.isPath(text) else {
                throw SettingKind.noPath(itself: itself.map { "`\($0.name)` (\($0.variable))" })
            }
        } else if !isSecret, text.hasSecrets {
            throw Mistake(
                "has a value that looks like a secret, and is therefore not shown; it must be \(kind.expectation)")
        }
        let shown = isSecret ? "wrong" : text.printable
        if let content = kind.content(text) {
            if let memberUnit, case .number(let number) = content, number % memberUnit.milliseconds != 0 {
                throw Mistake("is \(shown); it must be in whole \(memberUnit.name)")
            }
            return content
        }
        var sentence = "is \(shown); it must be \(kind.expectation)"
        switch kind {
        case .choice(let known):
            if let nearest = text.nearest(of: known) { sentence += "; did you mean \(nearest)?" }
        case .duration(let bare, _) where Int(text) != nil:
            sentence += " (a number without a unit is in \(bare.name))"
        default: break
        }
        throw Mistake(sentence)
    }

    /// If the value is the path of a file, the setting that has the file's contents; otherwise `nil`.
    private var itself: Setting? {
        let last = path.last ?? ""
        let own = last.hasSuffix("_file") ? String(last.dropLast(5)) : last + "_base64"
        return Self.all.first { $0.path == path.dropLast() + [own] }
    }
}

extension Setting: Hashable {
    static func == (left: Setting, right: Setting) -> Bool { left.path == right.path }
    func hash(into hasher: inout Hasher) { hasher.combine(path) }
}

// MARK: - Members of configurations

/// A configuration whose members are settings.
protocol ConfigurationRoot: Sendable {
    /// The configuration with all its defaults.
    static var initial: Self { get }
    /// The scope of its settings.
    static var scope: Setting.Scope { get }
}

/// The member of a configuration that gets a setting's value.
private struct SettingMember<Root>: Sendable {
    let write: @Sendable (SettingContent, inout Root) -> Void
}
