import PrintableText

/// A given value and its place.
struct SettingValue: Sendable, Equatable {
    /// The value as it is printed, which is the same for `90s` and `90000`.
    let text: String
    let content: SettingContent
    let place: SettingPlace
}

extension SettingValue {
    /// Rejects a single-label name that resembles `production`, `sandbox` or `development` and would be used as a host name.
    func refuseMistypedEnvironment() throws {
        let known = ["production", "sandbox", "development"]
        guard !text.contains("."), !text.contains(":"), !known.contains(text.lowercased()),
            let meant = text.nearest(of: known)
        else { return }
        throw CommandFailure(.configuration, "\(place) is \(text); did you mean \(meant)?")
    }

    /// Reads a value. Line ends after it are not a part of it: `echo`, editors and secrets of Kubernetes add them.
    init(_ text: String, of setting: Setting, at place: SettingPlace) throws(Mistake) {
        let text = String(decoding: text.utf8.reversed().drop { $0 == 0x0A || $0 == 0x0D }.reversed(), as: UTF8.self)
        try setting.refuseQuotes(text)
        let content = try setting.content(text)
        self.init(text: setting.kind.text(content), content: content, place: place)
    }
}

enum SettingPlace: Sendable, Equatable, CustomStringConvertible {
    case flag(String)
    case variable(String)
    case file(path: String, line: Int, name: String)
    case initial

    /// The beginning of a message about the value.
    var description: String {
        switch self {
        case .flag(let name), .variable(let name): name
        case .file(let path, let line, let name): "\(path):\(line): \(name)"
        case .initial: "the default"
        }
    }

    /// The place as shown in a column.
    var source: String {
        switch self {
        case .flag(let name), .variable(let name): name
        case .file(let path, let line, _): "\(path):\(line)"
        case .initial: "default"
        }
    }
}
