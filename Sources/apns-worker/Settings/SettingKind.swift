import PrintableText
import PushJob

/// The kind of a setting's values.
enum SettingKind: Sendable, Equatable {
    case text
    /// The path of a file.
    case file
    /// Several texts: a sequence in the file, separated by commas elsewhere.
    case list
    case number(ClosedRange<Int>)
    case choice([String])
    /// A duration such as `30s`. A bare number is in the given unit, as is the range.
    case duration(DurationUnit, ClosedRange<Int>)
    /// A size such as `64MiB`, or a bare number of bytes.
    case size(ClosedRange<Int>)

    /// Returns the content of a text; `nil` if the text is not a value of this kind.
    func content(_ text: String) -> SettingContent? {
        switch self {
        case .text, .file, .list: return .text(text)
        case .number(let range): return Int(text).flatMap { range.contains($0) ? .number($0) : nil }
        case .size(let range): return SizeText.bytes(text).flatMap { range.contains($0) ? .number($0) : nil }
        case .duration(let bare, let range):
            // A number without a unit. Digits are checked, because `Int` also reads a sign.
            let number = text.allSatisfy { $0.isASCII && $0.isNumber } ? Int(text) : nil
            if let number { return range.contains(number) ? .number(number * bare.milliseconds) : nil }
            let milliseconds = DurationText.milliseconds(text)
            return milliseconds.flatMap { self.milliseconds(bare, range).contains($0) ? .number($0) : nil }
        case .choice(let known):
            // YAML's other words for on and off.
            let switches = known == ["on", "off"] ? ["true": "on", "false": "off", "yes": "on", "no": "off"] : [:]
            let word = text.lowercased()
            let meant = switches[word] ?? word
            return known.contains(meant) ? .text(meant) : nil
        }
    }

    /// Returns a content as text with its unit. Reading the text returns the same content.
    func text(_ content: SettingContent) -> String {
        switch (content, self) {
        case (.number(let number), .duration): DurationText.text(number)
        case (.number(let number), .size): SizeText.text(number)
        case (.number(let number), _): "\(number)"
        case (.text(let text), _): text
        }
    }

    private func milliseconds(_ unit: DurationUnit, _ range: ClosedRange<Int>) -> ClosedRange<Int> {
        range.lowerBound * unit.milliseconds...range.upperBound * unit.milliseconds
    }

    /// Valid values: all values of a choice, or one value of another kind.
    var examples: [SettingContent] {
        switch self {
        case .text, .file, .list: [.text("")]
        case .number(let range), .size(let range): [.number(range.lowerBound)]
        case .duration(let bare, let range): [.number(range.lowerBound * bare.milliseconds)]
        case .choice(let known): known.map { .text($0) }
        }
    }

    /// The description of valid values, such as `a duration from 7s to 1h`.
    var expectation: String {
        switch self {
        case .text: "text"
        case .file: "the path of a file"
        case .list: "text, or a list of texts"
        case .number(let range): "a whole number from \(range.lowerBound) to \(range.upperBound)"
        case .size(let range):
            "a size from \(SizeText.text(range.lowerBound)) to \(SizeText.text(range.upperBound)), such as 64MiB, or in bytes"
        case .duration(let bare, let range): DurationText.range(milliseconds(bare, range))
        case .choice(let known):
            known.joined(by: "or")
        }
    }

    /// Returns the mistake of a value that is not the path of a file.
    /// - Parameter itself: the setting for the contents of the file, if there is one.
    static func noPath(itself: String?) -> Mistake {
        let instead = itself.map { ", which belongs in \($0)" } ?? ""
        return Mistake(
            "is not the path of a file; its text is not shown, because it may be the secret itself\(instead)")
    }

    /// The placeholder of the value in `--help`; `nil` for the flag's own name.
    var valueName: String? {
        switch self {
        case .text, .list: nil
        case .file: "file"
        case .number: "number"
        case .size: "size"
        case .duration: "duration"
        case .choice(let known): known.count <= 3 ? known.joined(separator: "|") : nil
        }
    }
}

/// A value that was read. Durations are in milliseconds, sizes in bytes.
enum SettingContent: Sendable, Equatable, ExpressibleByStringLiteral, ExpressibleByIntegerLiteral {
    case text(String)
    case number(Int)

    init(stringLiteral value: String) { self = .text(value) }
    init(integerLiteral value: Int) { self = .number(value) }

    func multiplied(by scale: Int) -> SettingContent {
        if case .number(let number) = self { .number(number * scale) } else { self }
    }

    func divided(by scale: Int) -> SettingContent {
        if case .number(let number) = self { .number(number / scale) } else { self }
    }
}

// MARK: - Members of configurations

/// A type of member that a setting can set.
protocol SettingValueType: Sendable {
    init?(_ content: SettingContent)
    var content: SettingContent? { get }
}

extension Int: SettingValueType {
    init?(_ content: SettingContent) {
        guard case .number(let number) = content else { return nil }
        self = number
    }
    var content: SettingContent? { .number(self) }
}

extension Int64: SettingValueType {
    init?(_ content: SettingContent) {
        guard case .number(let number) = content else { return nil }
        self.init(number)
    }
    var content: SettingContent? { .number(Int(self)) }
}

extension Bool: SettingValueType {
    init?(_ content: SettingContent) { self = content == "on" }
    var content: SettingContent? { .text(self ? "on" : "off") }
}

extension Optional: SettingValueType where Wrapped: SettingValueType {
    init?(_ content: SettingContent) {
        guard let value = Wrapped(content) else { return nil }
        self = .some(value)
    }
    var content: SettingContent? { flatMap(\.content) }
}

extension SettingValueType where Self: RawRepresentable, RawValue == String {
    init?(_ content: SettingContent) {
        guard case .text(let text) = content else { return nil }
        self.init(rawValue: text)
    }
    var content: SettingContent? { .text(rawValue) }
}
