import NIOCore
import PrintableText

/// A mistake in a member of a job or of its payload: where it is, what was found, and what to write.
///
/// It contains names of members, but never a value: payloads and tokens must not reach a log.
public struct MemberMistake: Equatable, Sendable, CustomStringConvertible {
    /// The kind of mistake.
    public enum Kind: String, Sendable, CaseIterable {
        /// A value of the wrong type, or out of range.
        case value
        /// A member that Apple does not document where it is.
        case unknown
        /// A member that occurs more than once.
        case `repeat`
        /// A payload without `aps`.
        case noAPS
    }

    /// The kind of mistake.
    public let kind: Kind
    /// The member, with the members that it is in: `aps.alert.title`.
    public let path: String
    /// The number of bytes before its value from the start of the text that was read.
    public let offset: Int
    /// The rest of a sentence that begins with the path: "must be a string, not a number".
    public let sentence: String

    /// The whole sentence.
    public var description: String { "`\(path)` \(sentence)" }
}

/// A kind of JSON value, as it is named in messages.
enum JSONKind {
    case text, number, truth, null, array, object

    init?(first byte: UInt8?) {
        guard let byte else { return nil }
        switch byte {
        case UInt8(ascii: "\""): self = .text
        case UInt8(ascii: "t"), UInt8(ascii: "f"): self = .truth
        case UInt8(ascii: "n"): self = .null
        case UInt8(ascii: "["): self = .array
        case UInt8(ascii: "{"): self = .object
        case UInt8(ascii: "-"), UInt8(ascii: "0")...UInt8(ascii: "9"): self = .number
        default: return nil
        }
    }
}

extension MemberMistake {
    /// Describes a value that is not valid, with what was found if that is not obvious.
    /// - Parameters:
    ///   - kinds: the kinds of values that can be valid.
    static func value(
        _ path: String, _ expectation: String, kinds: Set<JSONKind>, _ scanner: JSONScanner
    ) -> MemberMistake {
        let found = Self.found(scanner, kinds, isInteger: expectation.contains("integer")).map { ", not \($0)" } ?? ""
        return MemberMistake(
            kind: .value, path: path, offset: scanner.offset,
            sentence: "must be \(expectation)\(found)\(advice(scanner, kinds))")
    }

    /// Returns a description of the value at the scanner's position; `nil` if it says no more than that another one was
    /// expected.
    private static func found(_ scanner: JSONScanner, _ kinds: Set<JSONKind>, isInteger: Bool) -> String? {
        var scanner = scanner
        switch JSONKind(first: scanner.next) {
        case .text:
            let isEmpty = (try? scanner.string())?.range.isEmpty ?? false
            return isEmpty ? "an empty string" : kinds.contains(.text) ? nil : "a string"
        case .number:
            guard kinds.contains(.number) else { return "a number" }
            guard let number = try? scanner.number() else { return nil }
            if number.first == UInt8(ascii: "-") { return "a negative number" }
            return isInteger && number.contains(UInt8(ascii: ".")) ? "a fraction" : nil
        case .truth: return scanner.next == UInt8(ascii: "t") ? "true" : "false"
        case .null: return "null"
        case .array: return "an array"
        case .object: return "an object"
        case nil: return nil
        }
    }

    /// Returns what to change, for mistakes of encoders.
    private static func advice(_ scanner: JSONScanner, _ kinds: Set<JSONKind>) -> String {
        var scanner = scanner
        guard JSONKind(first: scanner.next) == .text, let text = try? scanner.string(), !text.range.isEmpty else {
            return ""
        }
        return JSONText.withCharacters(of: text, in: scanner.bytes) { text in
            if kinds.contains(.number), text.allSatisfy({ $0 &- UInt8(ascii: "0") < 10 }) {
                return "; write the number without quotation marks"
            }
            let isBracketed =
                text[0] == UInt8(ascii: "{") && kinds.contains(.object)
                || text[0] == UInt8(ascii: "[") && kinds.contains(.array)
            return isBracketed && !kinds.contains(.text) ? "; it was encoded twice" : ""
        }
    }

    /// Describes a member that is not one of those that are documented.
    static func unknown(
        _ name: JSONString, in path: String, among known: [String], _ scanner: JSONScanner
    ) -> MemberMistake {
        let text = JSONText.string(name, in: scanner.bytes)
        let meant = MemberName.nearest(to: text, among: known).map { "; did you mean `\($0)`?" }
        return MemberMistake(
            kind: .unknown, path: path, offset: scanner.offset,
            sentence: "has \(MemberName.quoted(text)), which Apple does not define there"
                + (meant ?? (path == "aps" ? "; put data of the app beside `aps`" : "")))
    }

    /// Describes the mistake of a job's member.
    /// - Parameter scanner: at the value, which is valid JSON but not valid for the member.
    static func of(_ member: JobMember, _ scanner: JSONScanner) -> MemberMistake {
        let name = "\(member.name)"
        let kinds = member.kinds
        if let mistake = member.payloadMember?.value.mistakes(name, in: .job, scanner).first { return mistake }
        if member == .tokens, let element = try? PayloadValue.firstOther(in: scanner) {
            return .value(
                "tokens[\(element.index)]", JobMember.token.expectation, kinds: [.text], element.scanner)
        }
        let mistake = MemberMistake.value(name, member.expectation, kinds: kinds, scanner)
        let advice =
            switch (member, JSONKind(first: scanner.next)) {
            case (.token, .array): "; use `tokens` for several"
            case (.tokens, .text): "; use `token` for one"
            default: ""
            }
        return MemberMistake(
            kind: .value, path: name, offset: mistake.offset, sentence: mistake.sentence + advice)
    }

    static func repeated(_ name: JSONString, in path: String, _ scanner: JSONScanner) -> MemberMistake {
        let text = JSONText.string(name, in: scanner.bytes)
        return MemberMistake(
            kind: .repeat, path: path, offset: scanner.offset,
            sentence: "has \(MemberName.quoted(text)) more than once; readers differ in which one counts")
    }
}

extension PayloadValue {
    /// The kinds of values that can be valid.
    func kinds(in dialect: PayloadDialect) -> Set<JSONKind> {
        switch self {
        case .text, .name, .channelID, .interruptionLevel, .event: [.text]
        case .flag, .truth, .zeroOrOne: dialect == .job ? [.number, .truth] : [.number]
        case .count, .score, .fraction: [.number]
        case .time: dialect == .job ? [.number, .text] : [.number]
        case .object: [.object]
        case .texts: [.array]
        case .alert, .localizedText, .sound: [.text, .object]
        }
    }

    /// Returns the mistakes of a value: at least one unless it is valid or absent.
    /// - Parameter scanner: at the value, which is valid JSON.
    func mistakes(_ path: String, in dialect: PayloadDialect, _ scanner: JSONScanner) -> [MemberMistake] {
        var probe = scanner
        var showsText = false
        let reading = (try? probe.read(self, as: dialect, showsText: &showsText)) ?? .invalid
        guard reading == .odd || reading == .invalid else { return [] }
        if let parts, scanner.next == UInt8(ascii: "{"), let mistakes = try? mistakes(parts, path, dialect, scanner) {
            return mistakes
        }
        if self == .texts, let element = try? Self.firstOther(in: scanner) {
            return [.value("\(path)[\(element.index)]", "a string", kinds: [.text], element.scanner)]
        }
        let choice = choices.flatMap { Self.meant($0, scanner) } ?? ""
        let mistake = MemberMistake.value(path, expectation(in: dialect), kinds: kinds(in: dialect), scanner)
        return [
            MemberMistake(
                kind: mistake.kind, path: path, offset: mistake.offset, sentence: mistake.sentence + choice)
        ]
    }

    private func mistakes(
        _ parts: PayloadParts, _ path: String, _ dialect: PayloadDialect, _ scanner: JSONScanner
    ) throws(JSONError) -> [MemberMistake] {
        var mistakes: [MemberMistake] = []
        var seen: PayloadParts = []
        var scanner = scanner
        var more = try scanner.enterObject()
        while more {
            let name = try scanner.name()
            let part = JSONText.withCharacters(of: name, in: scanner.bytes) {
                PayloadPart.named($0, among: parts, in: dialect)
            }
            if let part {
                if seen.contains(part) { mistakes.append(.repeated(name, in: path, scanner)) }
                seen.insert(part)
                mistakes += part.value.mistakes("\(path).\(part.name(in: dialect))", in: dialect, scanner)
            } else {
                let known = PayloadPart.allCases.filter(parts.contains).map { $0.name(in: dialect) }
                mistakes.append(.unknown(name, in: path, among: known, scanner))
            }
            try scanner.skipValue()
            more = try scanner.nextMember()
        }
        return mistakes
    }

    /// Returns the first element of an array that is not a string.
    fileprivate static func firstOther(in scanner: JSONScanner) throws(JSONError) -> (index: Int, scanner: JSONScanner)?
    {
        var scanner = scanner
        guard scanner.next == UInt8(ascii: "[") else { return nil }
        var index = 0
        var more = try scanner.enterArray()
        while more {
            if scanner.next != UInt8(ascii: "\"") { return (index, scanner) }
            try scanner.skipValue()
            index += 1
            more = try scanner.nextElement()
        }
        return nil
    }

    private static func meant(_ choices: [StaticString], _ scanner: JSONScanner) -> String? {
        var scanner = scanner
        guard scanner.next == UInt8(ascii: "\""), let text = try? scanner.string() else { return nil }
        let found = JSONText.string(text, in: scanner.bytes)
        return MemberName.nearest(to: found, among: choices.map { "\($0)" }).map { "; did you mean \"\($0)\"?" }
    }
}

extension JobMember {
    /// The kinds of values that can be valid.
    var kinds: Set<JSONKind> {
        switch self {
        case .id, .token, .app, .topic, .pushType, .collapseID, .apnsID, .onUncertain, .uniqueFor, .channel,
            .traceparent, .campaign, .fair:
            [.text]
        case .tokens: [.array]
        case .priority, .maxAttempts, .fairPerSecond: [.number]
        case .expiration, .sendAt, .registeredAt, .enqueuedAt: [.number, .text]
        case .collapseDuplicates, .truncate, .keepResult, .urgent: [.truth]
        case .payload, .labels, .custom: [.object]
        default: payloadMember?.value.kinds(in: .job) ?? []
        }
    }
}

extension PayloadPart {
    /// Its name as a job or a payload spells it.
    func name(in dialect: PayloadDialect) -> String {
        dialect == .job ? "\(appleName)".replacing("-", with: "_") : "\(appleName)"
    }
}

extension MemberMistake {
    /// Returns the mistakes in a payload; none if it is not an object of JSON.
    package static func inPayload(_ payload: ByteBuffer) -> [MemberMistake] {
        payload.withUnsafeReadableBytes { bytes in
            do throws(JSONError) {
                try JSONScanner.validate(bytes)
                var scanner = JSONScanner(bytes)
                scanner.skipWhitespace()
                return scanner.next == UInt8(ascii: "{") ? try Job.mistakes(scanner) : []
            } catch {
                return []
            }
        }
    }
}

extension Job {
    /// The mistakes in the job's payload, or in the members beside the short forms: those that Apple's documentation
    /// shows to be mistakes, although APNs accepts them. The payload is read again.
    package var mistakes: [MemberMistake] {
        guard facts.mayHaveMistakes else { return [] }
        return body.withUnsafeReadableBytes { bytes in
            do throws(JSONError) {
                return traits.contains(.shortForms)
                    ? try Self.mistakesOfCustom(JSONScanner(bytes, in: document))
                    : try Self.mistakes(JSONScanner(bytes, in: payload.range))
            } catch {
                // It was validated when the job was read.
                assertionFailure("\(error)")
                return []
            }
        }
    }

    fileprivate static func mistakes(_ payload: JSONScanner) throws(JSONError) -> [MemberMistake] {
        var mistakes: [MemberMistake] = []
        var apsMembers: Set<String> = []
        var hasAPS = false
        var isMDM = false
        let all = try walk(payload, "payload", &mistakes) { (name, scanner) throws(JSONError) in
            if name == "mdm", scanner.next == UInt8(ascii: "\"") { isMDM = true }
            guard name == "aps" else { return [] }
            hasAPS = true
            guard scanner.next == UInt8(ascii: "{") else {
                return [.value("aps", "an object", kinds: [.object], scanner)]
            }
            var inner: [MemberMistake] = []
            apsMembers.formUnion(
                try walk(scanner, "aps", &inner) { (name, scanner) throws(JSONError) in
                    guard let member = PayloadMember.inAPS.first(where: { "\($0.name)" == name }) else { return nil }
                    return member.value.mistakes("aps.\(name)", in: .payload, scanner)
                })
            return inner
        }
        if !hasAPS, !isMDM {
            mistakes.append(
                MemberMistake(
                    kind: .noAPS, path: "payload", offset: payload.offset,
                    sentence: "has no `aps`: nothing is shown unless the app shows it"))
        }
        return mistakes + misplaced(all.subtracting(apsMembers), in: "payload", payload)
    }

    private static func mistakesOfCustom(_ document: JSONScanner) throws(JSONError) -> [MemberMistake] {
        var found: [MemberMistake] = []
        var (all, custom, present): (Set<String>, JSONScanner?, Set<String>) = ([], nil, [])
        var ignored: [MemberMistake] = []
        present = try walk(document, "job", &ignored) { (name, scanner) in
            if name == "custom", scanner.next == UInt8(ascii: "{") { custom = scanner }
            return []
        }
        guard let custom else { return [] }
        all = try walk(custom, "custom", &found) { (_, _) in [] }
        return found + misplaced(all.subtracting(present.map { $0.replacing("_", with: "-") }), in: "custom", custom)
    }

    /// Returns the mistakes of names that belong into `aps` and are beside it.
    private static func misplaced(_ names: Set<String>, in path: String, _ scanner: JSONScanner) -> [MemberMistake] {
        PayloadMember.inAPS.filter { !$0.isCommonName && names.contains("\($0.name)") }.map { member in
            MemberMistake(
                kind: .unknown, path: path, offset: scanner.offset,
                sentence: "has `\(member.name)` next to `aps`, where iOS ignores it; move it into `aps`")
        }
    }

    /// Steps over an object's members, and adds their mistakes and those of repeated names.
    /// - Parameter read: returns the mistakes of a value; `nil` for a name that is not known.
    /// - Returns: the names.
    private static func walk(
        _ object: JSONScanner, _ path: String, _ mistakes: inout [MemberMistake],
        _ read: (String, JSONScanner) throws(JSONError) -> [MemberMistake]?
    ) throws(JSONError) -> Set<String> {
        var scanner = object
        var names: Set<String> = []
        var more = try scanner.enterObject()
        while more {
            let name = try scanner.name()
            let text = JSONText.string(name, in: scanner.bytes)
            if !names.insert(text).inserted { mistakes.append(.repeated(name, in: path, scanner)) }
            if let found = try read(text, scanner) {
                mistakes += found
            } else {
                mistakes.append(
                    .unknown(name, in: path, among: PayloadMember.inAPS.map { "\($0.name)" }, scanner))
            }
            try scanner.skipValue()
            more = try scanner.nextMember()
        }
        return names
    }
}
