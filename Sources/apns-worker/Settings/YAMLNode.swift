import CYAML

/// A node of a YAML 1.1 document with its line, read by libyaml.
///
/// Anchors and aliases work. Merge keys (`<<`) and tags of other types (`!include`) are errors, because settings would
/// be missing if they were ignored.
struct YAMLNode {
    enum Content {
        case scalar(String, isPlain: Bool)
        case sequence([YAMLNode])
        /// The members in the document's order. No two keys are equal texts.
        case mapping([(key: YAMLNode, value: YAMLNode)])
    }

    let content: Content
    /// The line of the node's first character, from 1. An alias has its own line. The members in it have the lines of the anchor's members.
    let line: Int

    struct SyntaxError: Error {
        /// The line, from 1.
        let line: Int
        /// The column, from 1; `nil` if the text is valid YAML that a configuration can't use.
        var column: Int?
        let problem: String
    }

    /// Reads the only document of a UTF-8 text.
    /// - Returns: `nil` if the text has no document, for example if it has only comments.
    /// - Throws: ``SyntaxError``.
    static func document(_ text: [UInt8]) throws(SyntaxError) -> YAMLNode? {
        guard !text.isEmpty else { return nil }
        let outcome: Result<YAMLNode?, SyntaxError> = text.withUnsafeBufferPointer { bytes in
            Result { () throws(SyntaxError) in
                let reader = try YAMLReader(bytes)
                return try reader.onlyDocument()
            }
        }
        return try outcome.get()
    }

    // MARK: Its content

    /// The text of a scalar.
    var string: String? {
        guard case .scalar(let text, _) = content else { return nil }
        return text
    }

    var mapping: [(key: YAMLNode, value: YAMLNode)]? {
        guard case .mapping(let members) = content else { return nil }
        return members
    }

    /// True for an absent value, `~` and `null`, but not for `"null"`.
    var isNull: Bool {
        guard case .scalar(let text, isPlain: true) = content else { return false }
        return ["", "~", "null", "Null", "NULL"].contains(text)
    }
}

/// Creates nodes from libyaml's events, so that reading stops when hostile nesting becomes too deep.
private final class YAMLReader {
    /// More nodes than a configuration of 1 MiB can have. Aliases of aliases can expand a short text to billions of nodes.
    private static let maximumNodes = 1_000_000
    /// More levels than any configuration needs.
    private static let maximumDepth = 100

    private let text: UnsafeBufferPointer<UInt8>
    /// The parser keeps a pointer to itself, so it must not move.
    private let parser: UnsafeMutablePointer<yaml_parser_t>
    /// The nodes that aliases can name, each with the number of nodes in it; `nil` while the node is being read.
    private var anchors: [String: (node: YAMLNode, count: Int)?] = [:]
    private var count = 0

    /// - Parameter text: a text that must stay valid as long as the reader, and must not be empty.
    init(_ text: UnsafeBufferPointer<UInt8>) throws(YAMLNode.SyntaxError) {
        self.text = text
        parser = .allocate(capacity: 1)
        guard yaml_parser_initialize(parser) == 1 else {
            parser.deallocate()
            throw YAMLNode.SyntaxError(line: 1, problem: "out of memory")
        }
        yaml_parser_set_input_string(parser, text.baseAddress, text.count)
    }

    deinit {
        yaml_parser_delete(parser)
        parser.deallocate()
    }

    func onlyDocument() throws(YAMLNode.SyntaxError) -> YAMLNode? {
        var root: YAMLNode?
        while true {
            let event = try next()
            switch event.kind {
            case YAML_STREAM_END_EVENT: return root
            case YAML_STREAM_START_EVENT, YAML_DOCUMENT_END_EVENT: continue
            case YAML_DOCUMENT_START_EVENT where root != nil:
                throw YAMLNode.SyntaxError(
                    line: event.line, problem: "a second document begins here; remove one of the two")
            case YAML_DOCUMENT_START_EVENT: root = try node(try next(), depth: 1)
            default: throw YAMLNode.SyntaxError(line: event.line, problem: "no document begins here")
            }
        }
    }

    private func node(_ event: Event, depth: Int) throws(YAMLNode.SyntaxError) -> YAMLNode {
        guard depth <= Self.maximumDepth else {
            throw YAMLNode.SyntaxError(line: event.line, problem: "nested more than \(Self.maximumDepth) levels deep")
        }
        if event.kind == YAML_ALIAS_EVENT { return try copy(of: event) }
        try event.checkTag()
        let before = count
        try add(1, at: event.line)
        if let anchor = event.anchor { anchors[anchor] = .some(nil) }
        let content: YAMLNode.Content
        switch event.kind {
        case YAML_SEQUENCE_START_EVENT: content = .sequence(try items(depth: depth + 1))
        case YAML_MAPPING_START_EVENT: content = .mapping(try members(depth: depth + 1))
        default: content = .scalar(event.text, isPlain: event.isPlain)
        }
        let node = YAMLNode(content: content, line: event.line)
        if let anchor = event.anchor { anchors[anchor] = (node, count - before) }
        return node
    }

    private func items(depth: Int) throws(YAMLNode.SyntaxError) -> [YAMLNode] {
        var items: [YAMLNode] = []
        while true {
            let event = try next()
            if event.kind == YAML_SEQUENCE_END_EVENT { return items }
            items.append(try node(event, depth: depth))
        }
    }

    private func members(depth: Int) throws(YAMLNode.SyntaxError) -> [(key: YAMLNode, value: YAMLNode)] {
        var members: [(key: YAMLNode, value: YAMLNode)] = []
        var names: Set<String> = []
        while true {
            let event = try next()
            if event.kind == YAML_MAPPING_END_EVENT { return members }
            let key = try node(event, depth: depth)
            if case .scalar("<<", isPlain: true) = key.content {
                throw YAMLNode.SyntaxError(
                    line: key.line, problem: "merge keys (`<<`) are not supported; repeat the settings instead")
            }
            if let name = key.string, !names.insert(name).inserted {
                throw YAMLNode.SyntaxError(
                    line: key.line, problem: "the key `\(name)` is given twice; remove one of the two")
            }
            members.append((key, try node(try next(), depth: depth)))
        }
    }

    /// Returns the node of an alias's anchor, with the alias's line.
    private func copy(of alias: Event) throws(YAMLNode.SyntaxError) -> YAMLNode {
        let name = alias.anchor ?? ""
        guard let anchored = anchors[name] else {
            throw YAMLNode.SyntaxError(
                line: alias.line, problem: "the alias `*\(name)` has no anchor `&\(name)` before it")
        }
        guard let anchored else {
            throw YAMLNode.SyntaxError(line: alias.line, problem: "the alias `*\(name)` refers to itself")
        }
        try add(anchored.count, at: alias.line)
        return YAMLNode(content: anchored.node.content, line: alias.line)
    }

    private func add(_ nodes: Int, at line: Int) throws(YAMLNode.SyntaxError) {
        count += nodes
        guard count <= Self.maximumNodes else {
            throw YAMLNode.SyntaxError(
                line: line, problem: "with its aliases, the file has more than \(Self.maximumNodes) values")
        }
    }

    // MARK: Events

    /// An event of libyaml, copied from its memory.
    private struct Event {
        let kind: yaml_event_type_t
        /// The line, from 1.
        let line: Int
        var anchor: String?
        var tag: String?
        var text = ""
        var isPlain = false

        init(_ event: yaml_event_t) {
            kind = event.type
            line = Int(event.start_mark.line) + 1
            func string(_ bytes: UnsafeMutablePointer<yaml_char_t>?) -> String? { bytes.map { String(cString: $0) } }
            switch kind {
            case YAML_ALIAS_EVENT: anchor = string(event.data.alias.anchor)
            case YAML_SEQUENCE_START_EVENT:
                (anchor, tag) = (string(event.data.sequence_start.anchor), string(event.data.sequence_start.tag))
            case YAML_MAPPING_START_EVENT:
                (anchor, tag) = (string(event.data.mapping_start.anchor), string(event.data.mapping_start.tag))
            case YAML_SCALAR_EVENT:
                let scalar = event.data.scalar
                (anchor, tag) = (string(scalar.anchor), string(scalar.tag))
                text = String(decoding: UnsafeBufferPointer(start: scalar.value, count: scalar.length), as: UTF8.self)
                isPlain = scalar.style == YAML_PLAIN_SCALAR_STYLE
            default: break
            }
        }

        /// Accepts the tags of YAML's own types, which have no effect because each setting has a type.
        func checkTag() throws(YAMLNode.SyntaxError) {
            guard let tag, tag != "!" else { return }
            let types = ["str", "int", "float", "bool", "null", "seq", "map"]
            guard types.contains(where: { tag == "tag:yaml.org,2002:\($0)" }) else {
                throw YAMLNode.SyntaxError(line: line, problem: "the tag `\(tag)` is not supported; remove it")
            }
        }
    }

    private func next() throws(YAMLNode.SyntaxError) -> Event {
        var event = yaml_event_t()
        guard yaml_parser_parse(parser, &event) == 1 else { throw problem }
        defer { yaml_event_delete(&event) }
        return Event(event)
    }

    private var problem: YAMLNode.SyntaxError {
        let problem = parser.pointee.problem.map { String(cString: $0) } ?? "out of memory"
        guard parser.pointee.error == YAML_READER_ERROR else {
            let mark = parser.pointee.problem_mark
            return YAMLNode.SyntaxError(line: Int(mark.line) + 1, column: Int(mark.column) + 1, problem: problem)
        }
        // For a character that YAML forbids, libyaml reports an offset in place of a mark.
        let lines = text.prefix(parser.pointee.problem_offset).split(
            separator: UInt8(ascii: "\n"), omittingEmptySubsequences: false)
        return YAMLNode.SyntaxError(line: lines.count, column: (lines.last?.count ?? 0) + 1, problem: problem)
    }
}
