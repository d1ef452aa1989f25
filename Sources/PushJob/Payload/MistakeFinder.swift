import NIOCore

/// Reads the members of a job and of its payload again, to describe the mistakes in them.
///
/// The first reading only notices that there are mistakes: most jobs have none.
public enum MistakeFinder {
    private static let membersInAPS = Dictionary(
        uniqueKeysWithValues: PayloadMember.inAPS.map { ("\($0.name)", $0) })
    private static let namesInAPS = MemberName.Known(PayloadMember.inAPS.map { "\($0.name)" })

    // MARK: Payloads

    /// Returns the mistakes in a payload; none if it is not an object of JSON.
    public static func mistakes(inPayload payload: ByteBuffer) -> [MemberMistake] {
        payload.withUnsafeReadableBytes { bytes in
            do throws(JSONError) {
                try JSONScanner.validate(bytes)
                var scanner = JSONScanner(bytes)
                scanner.skipWhitespace()
                return scanner.next == UInt8(ascii: "{") ? try mistakes(inPayload: scanner) : []
            } catch {
                return []
            }
        }
    }

    /// Returns the mistakes in a payload.
    /// - Parameter payload: at an object, which is valid JSON.
    static func mistakes(inPayload payload: JSONScanner) throws(JSONError) -> [MemberMistake] {
        var found: [MemberMistake] = []
        var apsMembers: Set<String> = []
        var hasAPS = false
        var isMDM = false
        let all = try walk(payload, "payload", &found) { (name, scanner) throws(JSONError) in
            if name == "mdm", scanner.next == UInt8(ascii: "\"") { isMDM = true }
            guard name == "aps" else { return headers(name, "payload", scanner) }
            hasAPS = true
            guard scanner.next == UInt8(ascii: "{") else {
                return [.value("aps", "an object", kinds: [.object], scanner)]
            }
            var inner: [MemberMistake] = []
            apsMembers.formUnion(
                try walk(scanner, "aps", &inner) { (name, scanner) throws(JSONError) in
                    guard let member = membersInAPS[name] else { return nil }
                    return mistakes(in: member.value, "aps.\(name)", .payload, scanner)
                })
            return inner
        }
        if !hasAPS, !isMDM {
            found.append(
                MemberMistake(
                    kind: .noAPS, path: "payload", offset: payload.offset,
                    sentence: "has no `aps`: nothing is shown unless the app shows it"))
        }
        return found + misplaced(all.subtracting(apsMembers), in: "payload", payload)
    }

    /// Returns the mistakes in the members beside the short forms.
    /// - Parameter document: at the object of a job, which is valid JSON.
    static func mistakes(inCustomOf document: JSONScanner) throws(JSONError) -> [MemberMistake] {
        var (found, ignored): ([MemberMistake], [MemberMistake]) = ([], [])
        var custom: JSONScanner?
        let present = try walk(document, "job", &ignored) { (name, scanner) in
            if name == "custom", scanner.next == UInt8(ascii: "{") { custom = scanner }
            return []
        }
        guard let custom else { return [] }
        let all = try walk(custom, "custom", &found) { (name, scanner) in headers(name, "custom", scanner) }
        return found + misplaced(all.subtracting(present.map { $0.replacing("_", with: "-") }), in: "custom", custom)
    }

    /// Returns the mistakes of a member beside `aps` that is a header of APNs, or an object of headers: the app would get them as data.
    private static func headers(_ name: String, _ path: String, _ scanner: JSONScanner) -> [MemberMistake] {
        func mistake(_ name: String, _ path: String) -> MemberMistake? {
            MemberName.setting(name, isHeader: true).map { member in
                MemberMistake(
                    kind: .unknown, path: path, offset: scanner.offset,
                    sentence:
                        "has \(MemberName.quoted(name)), which the app gets as data; write `\(member.name)` in the job")
            }
        }
        if name.lowercased() == "headers", scanner.next == UInt8(ascii: "{") {
            let document = scanner.offset..<scanner.end
            let names = (try? ForeignJob.members(scanner.bytes, in: document)) ?? []
            return names.compactMap { mistake($0.name, "\(path).headers") }
        }
        return mistake(name, path).map { [$0] } ?? []
    }

    /// Returns the mistakes of names that belong into `aps`, but are beside it.
    private static func misplaced(_ names: Set<String>, in path: String, _ scanner: JSONScanner) -> [MemberMistake] {
        PayloadMember.inAPS.filter { !$0.isCommonName && names.contains("\($0.name)") }.map { member in
            MemberMistake(
                kind: .unknown, path: path, offset: scanner.offset,
                sentence: "has `\(member.name)` next to `aps`, where iOS ignores it; move it into `aps`")
        }
    }

    /// Steps over an object's members, and adds their mistakes and a mistake for each repeated name, up to ``MemberName/maximumCompared``.
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
            let isNew = names.insert(text).inserted
            let mayName = mistakes.count < MemberName.maximumCompared
            if !isNew, mayName { mistakes.append(.repeated(name, in: path, scanner)) }
            if let found = try read(text, scanner) {
                if mayName { mistakes += found }
            } else if mayName {
                mistakes.append(.unknown(name, in: path, among: namesInAPS, scanner))
            }
            try scanner.skipValue()
            more = try scanner.nextMember()
        }
        return names
    }

    // MARK: Values

    /// Returns the mistake of a job's member.
    /// - Parameter scanner: at the value, which is valid JSON but not valid for the member.
    static func mistake(of member: JobMember, _ scanner: JSONScanner) -> MemberMistake {
        let name = "\(member.name)"
        if let value = member.payloadMember?.value, let mistake = mistakes(in: value, name, .job, scanner).first {
            return mistake
        }
        if member == .tokens, let element = try? firstOther(in: scanner) {
            return .value(
                "tokens[\(element.index)]", JobMember.token.expectation, kinds: [.text], element.scanner)
        }
        var mistake = MemberMistake.value(name, member.expectation, kinds: member.kinds, scanner)
        let advice =
            switch (member, JSONKind(first: scanner.next)) {
            case (.token, .array): "; use `tokens` for several"
            case (.tokens, .text): "; use `token` for one"
            case (.priority, .text): priorityAdvice(scanner)
            default: ""
            }
        mistake.sentence += advice
        return mistake
    }

    /// Returns advice about a priority that is a word, such as FCM's `high`.
    private static func priorityAdvice(_ scanner: JSONScanner) -> String {
        var scanner = scanner
        guard let text = try? scanner.string() else { return "" }
        return switch JSONText.string(text, in: scanner.bytes).lowercased() {
        case "high", "urgent", "immediate": "; write 10"
        case "normal": "; write 5"
        case "low": "; write 1"
        default: ""
        }
    }

    /// Returns the mistakes of a value: at least one unless it is valid or absent.
    /// - Parameter scanner: at the value, which is valid JSON.
    private static func mistakes(
        in value: PayloadValue, _ path: String, _ dialect: PayloadDialect, _ scanner: JSONScanner
    ) -> [MemberMistake] {
        var probe = scanner
        var showsText = false
        let reading = (try? value.read(&probe, as: dialect, showsText: &showsText)) ?? .invalid
        guard reading == .odd || reading == .invalid else { return [] }
        if let parts = value.parts, scanner.next == UInt8(ascii: "{"),
            let mistakes = try? mistakes(in: parts, path, dialect, scanner)
        {
            return mistakes
        }
        if value == .texts, let element = try? firstOther(in: scanner) {
            return [.value("\(path)[\(element.index)]", "a string", kinds: [.text], element.scanner)]
        }
        var mistake = MemberMistake.value(
            path, value.expectation(in: dialect), kinds: value.kinds(in: dialect), scanner)
        mistake.sentence += value.choices.flatMap { meant($0, scanner) } ?? ""
        return [mistake]
    }

    private static func mistakes(
        in parts: PayloadParts, _ path: String, _ dialect: PayloadDialect, _ scanner: JSONScanner
    ) throws(JSONError) -> [MemberMistake] {
        var found: [MemberMistake] = []
        var seen: PayloadParts = []
        let known = MemberName.Known(PayloadPart.allCases.filter(parts.contains).map { $0.name(in: dialect) })
        var scanner = scanner
        var more = try scanner.enterObject()
        while more, found.count < MemberName.maximumCompared {
            let name = try scanner.name()
            let part = JSONText.withCharacters(of: name, in: scanner.bytes) {
                PayloadPart.named($0, among: parts, in: dialect)
            }
            if let part {
                if seen.contains(part) { found.append(.repeated(name, in: path, scanner)) }
                seen.insert(part)
                found += mistakes(in: part.value, "\(path).\(part.name(in: dialect))", dialect, scanner)
            } else {
                found.append(.unknown(name, in: path, among: known, scanner))
            }
            try scanner.skipValue()
            more = try scanner.nextMember()
        }
        return found
    }

    /// Returns the first element of an array that is not a string.
    private static func firstOther(in scanner: JSONScanner) throws(JSONError) -> (index: Int, scanner: JSONScanner)? {
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
        return MemberName.nearest(to: found, among: MemberName.Known(choices.map { "\($0)" })).map {
            "; did you mean \"\($0)\"?"
        }
    }
}
