import PrintableText

/// The members of a thing's JSON, for people and for the API's description.
package struct ShownMembers: Sendable {
    package struct Member: Sendable {
        package let name, meaning: String
        let kind: ColumnKind
        let form: ColumnForm
        let isOptional: Bool
    }

    /// The name in the API's description, such as `DeadLetter`.
    package let name: String
    package let meaning: String
    /// The commands that print it with `--json`.
    package let commands: [String]
    /// True if an object can have further members.
    let isOpen: Bool
    package let all: [Member]

    /// The name, the commands that print it, and the meaning.
    package var title: String {
        "\(name)\(commands.isEmpty ? "" : " (`\(commands.joined(separator: "`, `"))`)"): \(meaning)"
    }

    private var withParts: [ShownMembers] { [self] + all.compactMap(\.form.part).flatMap(\.withParts) }

    /// Returns things, each followed by the things that are its members, without repetitions.
    package static func withParts(of things: [ShownMembers]) -> [ShownMembers] {
        var known: Set<String> = []
        return things.flatMap(\.withParts).filter { known.insert($0.name).inserted }
    }
}

extension ColumnForm {
    /// The thing that a value is or contains; `nil` if it is a text, number or switch, or contains only these.
    fileprivate var part: ShownMembers? {
        switch self {
        case .text, .number, .decimal, .flag: nil
        case .list(let form), .map(let form): form.part
        case .object(let members): members
        }
    }
}

// MARK: Help

extension ShownMembers.Member {
    /// The meaning, with the possible words or with the name of the thing that the value is or contains.
    package var explanation: String {
        switch kind {
        case .choice(let words): "\(meaning) \(words.map { "`\($0)`" }.joined(separator: ", "))."
        default: meaning + (form.part.map { " See \($0.name)." } ?? "")
        }
    }
}

// MARK: API

extension ShownMembers {
    package var reference: String { "{\"$ref\": \"#/components/schemas/\(name)\"}" }

    /// The schemas of some things and their parts, as members of the API's `components.schemas`.
    package static func schemas(_ things: [ShownMembers]) -> [String] {
        withParts(of: things).map { "\"\($0.name)\": \($0.schema)" }
    }

    private var schema: String {
        let properties = all.map { "\"\($0.name)\": \($0.schema)" }.joined(separator: ", ")
        let required = all.filter { !$0.isOptional }.map { "\"\($0.name)\"" }.joined(separator: ", ")
        return """
            {"type": "object", "description": \(JSONLine.quoted(meaning)), "properties": {\(properties)}\
            \(required.isEmpty ? "" : ", \"required\": [\(required)]")\
            \(isOpen ? "" : ", \"additionalProperties\": false")}
            """
    }
}

extension ShownMembers.Member {
    fileprivate var schema: String {
        var words: [String]?
        if case .choice(let all) = kind { words = all }
        return form.schema("\"description\": \(JSONLine.quoted(meaning))", words)
    }
}

extension ColumnForm {
    /// - Parameter description: the first member of the schema; `nil` for none.
    fileprivate func schema(_ description: String?, _ words: [String]? = nil) -> String {
        func object(_ members: String) -> String {
            "{\(([members] + [description].compactMap(\.self)).joined(separator: ", "))}"
        }
        switch self {
        case .text:
            let all = words.map { ", \"enum\": [\($0.map(JSONLine.quoted).joined(separator: ", "))]" } ?? ""
            return object("\"type\": \"string\"\(all)")
        case .number: return object("\"type\": \"integer\", \"format\": \"int64\"")
        case .decimal: return object("\"type\": \"number\"")
        case .flag: return object("\"type\": \"boolean\"")
        case .list(let form): return object("\"type\": \"array\", \"items\": \(form.schema(nil, words))")
        case .map(let form): return object("\"type\": \"object\", \"additionalProperties\": \(form.schema(nil))")
        // In OpenAPI 3.0 a reference has no other members.
        case .object(let members): return members.reference
        }
    }
}
