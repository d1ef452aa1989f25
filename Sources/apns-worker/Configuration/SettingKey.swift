/// A setting: what it is called in each place where it can be given, and what it may be.
///
/// In the file it stands by its path (`redis.url` is `url` in the mapping `redis`), in the environment as `APNS_WORKER_` and
/// the path in capitals with `_` for dots.
struct SettingKey: Sendable {
    /// What a value may be.
    enum Kind: Sendable, Equatable {
        case text
        /// Several texts: a sequence in the file, with commas elsewhere.
        case list
        case number(ClosedRange<Int>)
        case choice([String])
    }

    /// Whose setting it is.
    enum Scope: Sendable {
        /// The whole worker's.
        case worker
        /// Each app's own (`apps.<name>.…`), or common to those that do not have it themselves.
        case app
        /// Each queue's own (`queues.<name>.…`), or common to those that do not have it themselves.
        case queue
    }

    let path: [String]
    let kind: Kind
    let scope: Scope
    /// What it is where it is not given; `nil` where that has no value.
    let initial: String?
    /// In what a number counts; empty where it counts things.
    let unit: String
    /// Whether it is never shown.
    let isSecret: Bool
    /// Whether a worker that runs takes up another value.
    let isReloadable: Bool
    /// Its flag, if it has one.
    let flag: String?
    /// Whether it can be given for all apps or queues at once.
    let canBeCommon: Bool

    init(
        _ path: String, _ kind: Kind = .text, _ scope: Scope = .worker, initial: String? = nil, unit: String = "",
        isSecret: Bool = false, isReloadable: Bool? = nil, hasFlag: Bool = true, flag: String? = nil,
        canBeCommon: Bool = true
    ) {
        self.path = path.split(separator: ".").map(String.init)
        self.kind = kind
        self.scope = scope
        self.initial = initial
        self.unit = unit
        self.isSecret = isSecret
        self.isReloadable = isReloadable ?? (scope == .app)
        let name = path.map { $0 == "." || $0 == "_" ? "-" : String($0) }.joined()
        self.flag = hasFlag ? "--" + (flag ?? name) : nil
        self.canBeCommon = canBeCommon
    }

    /// Its name in the file, dotted.
    var name: String { path.joined(separator: ".") }

    /// Its name in the environment.
    var variable: String { Self.variable(path) }

    /// How a path is called in the environment.
    static func variable(_ path: [String]) -> String {
        variablePrefix + path.map(variablePart).joined(separator: "_")
    }

    /// What the names of all variables begin with.
    static let variablePrefix = "APNS_WORKER_"

    /// A part of a path as it stands in a variable's name.
    static func variablePart(_ part: String) -> String {
        part.uppercased().map { $0.isLetter || $0.isNumber ? String($0) : "_" }.joined()
    }
}

extension SettingKey {
    /// What is wrong with a value, to be put behind what it is the value of; `nil` if it can be taken.
    func problem(with text: String) -> String? {
        switch kind {
        case .text, .list: return nil
        case .number(let range):
            let words = "a whole number from \(range.lowerBound) to \(range.upperBound)"
            let counts = unit.isEmpty ? words : "\(words) (\(unit))"
            guard let number = Int(text), range.contains(number) else { return "it has to be \(counts)" }
            return nil
        case .choice(let known):
            guard !known.contains(text) else { return nil }
            let nearest = NearestName.of(text, among: known).map { "; did you mean \($0)?" }
            return "it has to be \(Self.enumeration(known))" + (nearest ?? "")
        }
    }

    private static func enumeration(_ words: [String]) -> String {
        guard let last = words.last, words.count > 1 else { return words.first ?? "" }
        return words.dropLast().joined(separator: ", ") + " or " + last
    }
}

extension SettingKey: Hashable {
    static func == (left: SettingKey, right: SettingKey) -> Bool { left.path == right.path }
    func hash(into hasher: inout Hasher) { hasher.combine(path) }
}
