import PrintableText

/// A value that was given, and its place.
struct SettingValue: Sendable, Equatable {
    /// The value as it is printed: the same for `90s` and `90000`.
    let text: String
    let content: SettingContent
    let place: SettingPlace
}

extension SettingValue {
    /// Refuses a name of one label that is nearly `production`, `sandbox` or `development`. It would be taken for a host.
    func refuseMistypedEnvironment() throws {
        let known = ["production", "sandbox", "development"]
        guard !text.contains("."), !text.contains(":"), !known.contains(text.lowercased()),
            let meant = text.nearest(of: known)
        else { return }
        throw CommandFailure(.configuration, "\(place) is \(text); did you mean \(meant)?")
    }

    init(_ text: String, of setting: Setting, at place: SettingPlace) throws(SettingMistake) {
        let content = try setting.content(text)
        self.init(text: setting.kind.text(content), content: content, place: place)
    }
}

/// The place of a value.
enum SettingPlace: Sendable, Equatable, CustomStringConvertible {
    case flag(String)
    case variable(String)
    case file(path: String, line: Int, name: String)
    case initial

    /// The beginning of a sentence about the value.
    var description: String {
        switch self {
        case .flag(let name), .variable(let name): name
        case .file(let path, let line, let name): "\(path):\(line): \(name)"
        case .initial: "the default"
        }
    }

    /// The place as a column shows it.
    var source: String {
        switch self {
        case .flag(let name), .variable(let name): name
        case .file(let path, let line, _): "\(path):\(line)"
        case .initial: "default"
        }
    }
}
