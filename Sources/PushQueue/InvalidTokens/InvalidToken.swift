import NIOCore

/// A device token that is not valid any more, and what is known about it.
public struct InvalidToken: Sendable, Equatable {
    /// The source of the report. The raw value is the `source` in the details.
    public enum Source: String, Sendable {
        case apns
        case gateway
        case feedback
        /// An operator, with tokens that another system had found.
        case imported = "import"
    }

    /// Lower-case hex digits.
    public var token: ByteBuffer
    /// Since when, in milliseconds since 1970.
    public var at: Int64
    /// APNs' reason.
    public var reason: String
    /// The topic that it is not valid for; `nil` for all.
    public var topic: ByteBuffer?
    /// Which APNs it is not valid at: `production`, `sandbox`, or another server's name; `nil` where it is not known.
    public var environment: String?
    /// The source of the report.
    public var source: Source

    /// Makes a record; see the members for shapes and units.
    public init(
        token: ByteBuffer, at: Int64, reason: String, topic: ByteBuffer?, environment: String? = nil, source: Source
    ) {
        self.token = token
        self.at = at
        self.reason = reason
        self.topic = topic
        self.environment = environment
        self.source = source
    }

    /// The value of the token in the details hash.
    var details: ByteBuffer {
        var json = ByteBuffer()
        json.writeString("{\"at\":\(at),\"reason\":")
        json.writeJSONString(reason)
        if let topic {
            json.writeString(",\"topic\":")
            json.writeJSONString(topic)
        }
        if let environment {
            json.writeString(",\"environment\":")
            json.writeJSONString(environment)
        }
        json.writeString(",\"source\":\"\(source.rawValue)\"}")
        return json
    }

    /// Writes it as a line of JSON, for other programs: what the details hash has, with the token, the app and what became of it.
    /// - Parameters:
    ///   - app: the app's name.
    ///   - outcome: such as `added`.
    public func writeLine(to lines: inout ByteBuffer, app: String, outcome: String) {
        lines.writeString("{\"token\":")
        lines.writeJSONString(token)
        lines.writeString(",\"at\":\(at),\"app\":")
        lines.writeJSONString(app)
        if let topic {
            lines.writeString(",\"topic\":")
            lines.writeJSONString(topic)
        }
        if let environment {
            lines.writeString(",\"environment\":")
            lines.writeJSONString(environment)
        }
        lines.writeString(",\"source\":\"\(source.rawValue)\",\"outcome\":")
        lines.writeJSONString(outcome)
        lines.writeString("}\n")
    }
}
