import FoundationEssentials
import NIOCore
import PrintableText
import PushJob
import PushQueue

/// The fields of a filter or a change: flags of a command, a form, a query or the members of a JSON object. A name can
/// occur several times.
package struct Fields: Sendable {
    private var fields: [(name: String, value: String)]
    private let refusesEmpty: Bool
    /// The names of fields that a JSON object has as `true` or `false`.
    private var booleans: Set<String> = []

    /// - Parameter refusesEmpty: true to refuse empty values, such as those of an unset variable in a script. The forms of pages need
    ///   false: they have an empty value for each field that the operator did not fill in.
    package init(
        _ fields: [(name: String, value: String)] = [], refusesEmpty: Bool = false, booleans: Set<String> = []
    ) {
        self.fields = fields
        self.refusesEmpty = refusesEmpty
        self.booleans = booleans
    }

    package var isEmpty: Bool { fields.isEmpty }

    /// The value of a field; `nil` if it is missing or blank.
    package subscript(name: String) -> String? { all(name).first }

    /// The non-blank values of a field, unchanged, because names are compared by their bytes.
    package func all(_ name: String) -> [String] {
        fields.lazy.filter { $0.name == name && !$0.value.trimmed.isEmpty }.map(\.value)
    }

    /// The value of a field that is not a name, without surrounding white space.
    func word(_ name: String) -> String? { self[name]?.trimmed }

    /// Returns the value as it was sent.
    package func raw(_ name: String) -> String { fields.first { $0.name == name }?.value ?? "" }

    /// Returns the value of a switch: `true`, `1`, `yes` or `on`, or `false`, `0`, `no` or `off`, in any case. A missing switch is off.
    package func isSet(_ name: String) throws(FieldMistake) -> Bool {
        guard let text = word(name) else { return false }
        switch text.lowercased() {
        case "true", "1", "yes", "on": return true
        case "false", "0", "no", "off": return false
        default: throw FieldMistake { "\($0(name)) must be true or false, not \(text.printable)" }
        }
    }

    /// Checks that all fields are known, that none has an empty value, and that each has the form of its kind. No field is ignored, because
    /// a filter with a misspelled name would choose everything.
    package func check(_ known: [Field]) throws(FieldMistake) {
        for (name, value) in fields {
            guard let field = known.first(where: { $0.name == name }) else {
                // A form sends all fields of its page. Empty fields need not be known.
                if !refusesEmpty, value.trimmed.isEmpty { continue }
                let names = known.map(\.name)
                let meant = name.nearest(of: names)
                throw FieldMistake { spelling in
                    "\(spelling(name.printable)) is not known"
                        + (meant.map { "; did you mean \(spelling($0))?" }
                            ?? (names.isEmpty
                                ? "" : "; known are \(names.map { spelling($0) }.joined(separator: ", "))"))
                }
            }
            if refusesEmpty, value.trimmed.isEmpty {
                throw FieldMistake { "\($0(name)) is empty; set a value or omit it" }
            }
            if booleans.contains(name), field.kind != .flag {
                throw FieldMistake { "\($0(name)) must be text, not \(value)" }
            }
        }
        for field in known {
            if field.kind == .flag { _ = try isSet(field.name) }
            if field.kind != .texts, all(field.name).count > 1 {
                throw FieldMistake { "\($0(field.name)) occurs more than once" }
            }
        }
    }

    /// The same fields, with empty values as mistakes.
    package var refusingEmpty: Fields { Fields(fields, refusesEmpty: true, booleans: booleans) }

    /// Returns true if a field is present with an empty value.
    package func isBlank(_ name: String) -> Bool {
        fields.contains { $0.name == name && $0.value.trimmed.isEmpty }
    }

    /// Divides the fields into the fields with one of the names, and all other fields.
    package func divided(by names: Set<String>) -> (these: Fields, others: Fields) {
        var (these, others) = (self, self)
        these.fields.removeAll { !names.contains($0.name) }
        others.fields.removeAll { names.contains($0.name) }
        return (these, others)
    }

    /// Returns the fields except some, for a link or a form that repeats them.
    package func without(_ names: Set<String>) -> [(name: String, value: String?)] {
        fields.filter { !names.contains($0.name) && !$0.value.isEmpty }.map { ($0.name, $0.value) }
    }

    package mutating func append(_ name: String, _ value: String?) {
        if let value { fields.append((name, value)) }
    }

    package mutating func append(_ name: String, _ values: [String]) {
        for value in values { fields.append((name, value)) }
    }

    /// Describes some fields for other operators, such as `state=retrying, app=shop`; `all` without any. Device tokens
    /// are masked.
    package func words(_ names: [String]) -> String {
        let parts = names.flatMap { name in
            all(name).prefix(5).map { "\(name)=\(name == "token" && $0.count > 8 ? "\($0.prefix(8))…" : $0)" }
        }
        return parts.isEmpty ? "all" : AuditEntry.maskingTokens(parts.joined(separator: ", "))
    }
}

/// A field that a change or a filter accepts.
package struct Field: Sendable {
    /// The form of its value. `texts` can occur several times.
    package enum Kind: String, Sendable { case text, texts, flag, number }

    package let name: String
    package let kind: Kind
    package let isRequired: Bool
    /// The help of the field's flag, and the field's description in the API. Empty for a field that only a ``Change`` has.
    package let meaning: String
    /// The allowed values; empty if all are.
    package let words: [String]

    package init(
        _ name: String, _ kind: Kind = .text, isRequired: Bool = false, _ meaning: String = "", words: [String] = []
    ) {
        (self.name, self.kind, self.isRequired, self.meaning, self.words) = (name, kind, isRequired, meaning, words)
    }

    /// Returns the fields `since` and `until`.
    /// - Parameter things: the things in the range, such as `Jobs`.
    package static func range(_ things: String, _ by: String = "") -> [Field] {
        [
            Field("since", .text, "\(things) since \(Fields.timeForm)\(by)."),
            Field("until", .text, "\(things) until this time, in the form of `since`."),
        ]
    }

    /// The flag that chooses everything. An empty filter is refused.
    static let all = Field("all", .flag)
}

/// A mistake in a field. Commands and the API spell the names of fields in their own way.
package struct FieldMistake: Error, Sendable, CustomStringConvertible {
    package enum Spelling: Sendable {
        /// As a flag: `--due-before`.
        case flag
        /// As a member of JSON or a field of a form: `due_before`.
        case member

        package func callAsFunction(_ name: String) -> String {
            switch self {
            case .flag: "--" + name.replacing("_", with: "-")
            case .member: name
            }
        }
    }

    private let words: @Sendable (Spelling) -> String

    /// - Parameter words: the problem and the remedy, with the names of fields in a spelling.
    package init(_ words: @escaping @Sendable (Spelling) -> String) { self.words = words }

    package func text(_ spelling: Spelling) -> String { words(spelling) }

    package var description: String { words(.member) }
}

extension Fields {
    /// The form of a time, for help texts and errors.
    package static let timeForm =
        "a duration ago such as 10m or 7d, or a time: ISO 8601, or seconds or milliseconds since 1970"

    package func required(_ name: String) throws(FieldMistake) -> String {
        guard let value = self[name] else { throw FieldMistake { "\($0(name)) is missing" } }
        return value
    }

    /// Returns the values of a field. Empty values are mistakes if ``refusesEmpty``.
    func texts(_ name: String) throws(FieldMistake) -> [String] {
        if refusesEmpty, fields.contains(where: { $0.name == name && $0.value.trimmed.isEmpty }) {
            throw FieldMistake { "\($0(name)) is empty; set a value or omit it" }
        }
        return all(name)
    }

    func names(_ name: String) throws(FieldMistake) -> [Name] { try texts(name).map { Name($0) } }

    package func number(_ name: String, _ range: ClosedRange<Int>) throws(FieldMistake) -> Int? {
        guard let text = word(name) else { return nil }
        guard let number = Int(text), range.contains(number) else {
            throw FieldMistake {
                "\($0(name)) must be \(range.lowerBound) to \(range.upperBound), not \(text.printable)"
            }
        }
        return number
    }

    /// The maximum number of changes per second.
    package func rate(_ name: String = "rate") throws(FieldMistake) -> Int? { try number(name, 1...1_000_000) }

    package func limit() throws(FieldMistake) -> Int? {
        guard let text = word("limit") else { return nil }
        guard let limit = Int(text), limit >= 1 else { throw FieldMistake { "\($0("limit")) must be at least 1" } }
        return limit
    }

    /// The keys of jobs or dead letters, as lists show them.
    package func keys() throws(FieldMistake) -> [String] {
        let keys = try texts("key").map { $0.trimmed.lowercased() }
        if let wrong = keys.first(where: { !Self.isKey($0) }) {
            throw FieldMistake { "\($0("key")) is \(wrong.printable); it must be ten hex digits, as lists show them" }
        }
        return keys
    }

    package static func isKey(_ text: String) -> Bool { text.utf8.count == 10 && text.isHexadecimal }

    /// Checks that something is chosen: either by a filter or by the word `all`.
    /// - Parameter things: for the message, such as `jobs`.
    func checkChoice(_ things: String, isEmpty: Bool, _ filter: [String]) throws(FieldMistake) {
        let isAll = try isSet("all")
        guard isEmpty == isAll else {
            throw FieldMistake { spelling in
                isAll
                    ? "\(spelling("all")) cannot be combined with filters"
                    : "choose \(things) with \(filter.map { spelling($0) }.joined(separator: ", ")) or another filter, or pass "
                        + spelling("all")
            }
        }
    }

    /// Returns a time in milliseconds since 1970.
    /// - Parameter now: durations count back from this time.
    package func time(_ name: String, now: Int64) throws(FieldMistake) -> Int64? {
        guard let text = word(name) else { return nil }
        if let age = DurationText.milliseconds(text) { return max(0, now - Int64(age)) }
        guard let time = JobTime.milliseconds(text), time >= 0 else {
            throw FieldMistake { "\($0(name)) must be \(Self.timeForm), not \(text.printable)" }
        }
        return time
    }

    package func range(now: Int64) throws(FieldMistake) -> (since: Int64?, until: Int64?) {
        let (since, until) = (try time("since", now: now), try time("until", now: now))
        if let since, let until, until < since {
            throw FieldMistake { "nothing can match, because \($0("until")) is before \($0("since"))" }
        }
        return (since, until)
    }

    /// Returns the operator's reason, made printable.
    package func reason() throws(FieldMistake) -> String? {
        guard let reason = try texts("reason").first?.trimmed else { return nil }
        let isGood = !reason.printable.allSatisfy(\.isWhitespace) && reason.count <= 200 && reason.utf8.count <= 800
        guard isGood else { throw FieldMistake { "\($0("reason")) must have 1 to 200 printable characters" } }
        return reason.printable
    }

    /// Returns the reason, topic or environment of invalid tokens, which is short ASCII text.
    package func label(_ name: String) throws(FieldMistake) -> String? {
        guard let label = try texts(name).first?.trimmed else { return nil }
        let isGood = (1...255).contains(label.utf8.count) && label.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7F }
        guard isGood else {
            throw FieldMistake { "\($0(name)) must have 1 to 255 printable ASCII characters without spaces" }
        }
        return label
    }

    func labels() throws(FieldMistake) -> [String] {
        let labels = try texts("label")
        for label in labels where !label.dropFirst().contains("=") {
            throw FieldMistake {
                "\($0("label")) must be the name and the value of a label, such as country=de, not \(label.printable)"
            }
        }
        return labels
    }

    func campaign() throws(FieldMistake) -> String {
        let campaign = try required("campaign")
        guard JobLabels.isCampaign(campaign) else {
            throw FieldMistake { _ in "the name of a campaign has 1 to 100 bytes, and no control characters" }
        }
        return campaign
    }

    /// Returns device tokens or channels. The beginning of a token, as results and logs show it, is refused: nothing
    /// would match it.
    func tokens() throws(FieldMistake) -> [String] {
        let tokens = try texts("token").map(\.trimmed)
        for token in tokens where TokenText.isShortened(token) {
            throw FieldMistake {
                "\($0("token")) is \(token.printable), the beginning of a token; a device token has 64 hex digits or more"
            }
        }
        return tokens
    }

    /// Returns the hex of the tokens in the field `tokens`, which must have at least one.
    /// - Parameter token: returns the hex of a device token; `nil` if it is not one.
    func wholeTokens(_ token: (String) -> String?) throws(FieldMistake) -> [String] {
        let texts = TokenText.divided(raw("tokens"))
        guard !texts.isEmpty else { throw FieldMistake { "\($0("tokens")) is missing" } }
        var tokens: [String] = []
        for text in texts {
            guard let hex = token(text) else {
                throw FieldMistake { _ in "\(text.prefix(8).printable)… is not a device token in hex or base64" }
            }
            tokens.append(hex)
        }
        return tokens
    }

    func job() throws(FieldMistake) -> ByteBuffer {
        let job = ByteBuffer(string: raw("job"))
        guard job.readableBytes > 0 else { throw FieldMistake { "\($0("job")) is missing" } }
        return job
    }
}

extension String {
    /// Returns true if a reason is equal to this text. If the text ends with `*`, the reason must only begin with the text before it.
    func matches(reason: String) -> Bool {
        utf8.last == UInt8(ascii: "*") ? reason.utf8.starts(with: utf8.dropLast()) : reason.utf8.elementsEqual(utf8)
    }
}
