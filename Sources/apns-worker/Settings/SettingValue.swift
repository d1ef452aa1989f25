import APNS
import PrintableText
import TLS

/// A given value and its place.
struct SettingValue: Sendable, Equatable {
    /// The value as it is printed, which is the same for `90s` and `90000`.
    let text: String
    let content: SettingContent
    let place: SettingPlace
}

extension SettingValue {
    /// Returns the endpoint that the value names. A single-label name that resembles `production`, `sandbox` or `development` is
    /// refused, because it would be used as a host name.
    func endpoint(_ read: (String) -> APNSEndpoint?) throws -> APNSEndpoint {
        let known = ["production", "sandbox", "development"]
        if !text.contains("."), !text.contains(":"), !known.contains(text.lowercased()),
            let meant = text.nearest(of: known)
        {
            throw CommandFailure(.configuration, "\(place) is \(text); did you mean \(meant)?")
        }
        guard let endpoint = read(text) else {
            throw CommandFailure(.configuration, "\(place) is \(text); it must be production, sandbox or host:port")
        }
        return endpoint
    }

    /// Returns a secret that is in a file, or in a value as base64.
    static func secret(_ file: SettingValue?, _ base64: SettingValue?) throws -> SecretSource? {
        switch (file, base64) {
        case (nil, nil): nil
        case (let path?, nil): .file(path.text)
        case (nil, let text?): .base64(text.text, name: text.place.description)
        case (let path?, let text?):
            throw CommandFailure(.configuration, "\(path.place) and \(text.place) are both set; omit one of them")
        }
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
