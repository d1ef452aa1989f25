import FoundationEssentials
import NIOCore

/// A JSON value, for finding likely mistakes rather than for interpreting it.
enum JSONValue: Decodable {
    case object([String: JSONValue])
    case array([JSONValue])
    case text(String)
    case other

    /// - Returns: `nil` if the bytes are not valid JSON.
    static func read(_ bytes: ByteBuffer) -> JSONValue? {
        try? JSONDecoder().decode(Self.self, from: Data(bytes.readableBytesView))
    }

    init(from decoder: any Decoder) throws {
        let container = try decoder.singleValueContainer()
        if let object = try? container.decode([String: JSONValue].self) {
            self = .object(object)
        } else if let array = try? container.decode([JSONValue].self) {
            self = .array(array)
        } else if let text = try? container.decode(String.self) {
            self = .text(text)
        } else {
            self = .other
        }
    }

    var members: [String: JSONValue]? {
        if case .object(let members) = self { members } else { nil }
    }

    var text: String? {
        if case .text(let text) = self { text } else { nil }
    }

    /// True if it is empty text, or `null` or another value that is neither object, array nor text.
    var isNothing: Bool {
        switch self {
        case .other: true
        case .text(let text): text.isEmpty
        case .object, .array: false
        }
    }

    var elements: [JSONValue]? {
        if case .array(let elements) = self { elements } else { nil }
    }
}
