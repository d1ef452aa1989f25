import NIOCore

/// A device token that is no longer valid, and the known facts about it.
public struct InvalidToken: Sendable, Equatable {
    /// The source of the report. The raw value is the `source` in the details.
    public enum Source: String, Sendable {
        case apns
        case gateway
        case feedback
        /// An operator, who added tokens that another system had found.
        case imported = "import"
    }

    /// The result of marking a token as invalid.
    public enum Marking: Int, Sendable {
        case added = 1
        /// It was in the set already.
        case known = 0
        /// It was not added, because its device has registered since.
        case registeredSince = -1
    }

    /// Lower-case hex digits.
    public var token: ByteBuffer
    /// The time when it became invalid, in milliseconds since 1970. A time ahead of Redis' clock counts as now.
    public var at: Int64
    public var reason: String
    /// The topic that it is not valid for; `nil` for all.
    public var topic: ByteBuffer?
    /// The environment where it is not valid: `production`, `sandbox`, or another server's name; `nil` if unknown.
    public var environment: String?
    public var source: Source
    /// False if the topic is not an app's own, but comes from a push type or a job. The token is then kept out of the sets that other
    /// programs read.
    public var isOfOwnTopic = true
    /// The time of the device's last registration, in milliseconds since 1970, if the job has it. If it is later than ``at``, the token is
    /// not marked.
    public var registeredAt: Int64?

    /// A value of ``at`` that is ahead of every clock, and so counts as now.
    public static let now = Int64(1) << 52

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

    /// The facts about the token that many tokens have in common, as a JSON object.
    var facts: ByteBuffer {
        var json = ByteBuffer(string: "{")
        json.writeMember("reason", reason)
        json.writeMember("topic", topic)
        json.writeMember("environment", environment)
        json.writeMember("source", source.rawValue)
        json.writeMember("set", isOfOwnTopic ? nil : "other")
        json.writeString("}")
        return json
    }

    /// Writes a line of JSON for other programs: the token, the known facts, the app and the outcome.
    /// - Parameter outcome: such as `added`.
    public func writeLine(to lines: inout ByteBuffer, app: String, outcome: String) {
        lines.writeString("{")
        lines.writeMember("token", token)
        lines.writeMember("at", at)
        lines.writeMember("app", app)
        lines.writeMember("topic", topic)
        lines.writeMember("environment", environment)
        lines.writeMember("source", source.rawValue)
        lines.writeMember("outcome", outcome)
        lines.writeString("}\n")
    }
}

extension InvalidToken {
    /// A token that is invalid for some topic, with its marks as they are stored.
    public struct Found: Sendable, Equatable {
        public struct Mark: Sendable, Equatable {
            /// The time when the token became invalid, in milliseconds since 1970.
            public var at: Int64
            /// The day of the marking, counted from 1970.
            public var day: Int64
            /// The facts except ``at`` and ``day``, as JSON; empty for none.
            public var facts: ByteBuffer

            public init(at: Int64, day: Int64 = 0, facts: ByteBuffer) {
                (self.at, self.day, self.facts) = (at, day, facts)
            }

            public var details: InvalidTokenDetails { InvalidTokenDetails(at: at, facts: facts) }
        }

        /// Its index among the tokens that were looked up, from 0.
        public var place: Int
        public var token: ByteBuffer
        public var sets: TokenSets
        /// The time of its device's last registration, in milliseconds since 1970; `nil` if unknown.
        public var registeredAt: Int64?
        /// Empty if another program added the token.
        public var marks: [Mark]

        public init(
            place: Int = 0, token: ByteBuffer, sets: TokenSets = .production, registeredAt: Int64? = nil,
            marks: [Mark] = []
        ) {
            (self.place, self.token, self.sets, self.registeredAt, self.marks) = (
                place, token, sets, registeredAt, marks
            )
        }

        public var details: [InvalidTokenDetails] { marks.map(\.details) }

        /// Returns the time when it became invalid for a topic in an environment, in milliseconds since 1970; 0 if the time is not
        /// known, `nil` if it is not invalid there.
        public func invalidSince(topic: ByteBuffer?, environment: ByteBuffer) -> Int64? {
            if marks.isEmpty { return sets.contains(.of(environment)) ? 0 : nil }
            return details.filter { $0.covers(topic: topic, environment: environment, in: sets) }
                .map { $0.at ?? 0 }.max()
        }
    }

    public struct Removal: Sendable, Equatable {
        /// The marks to remove.
        public enum Reason: String, Sendable {
            case all
            /// Marks from before ``registeredAt``, when the device registered.
            case registered
            /// The mark for the topic and environment. The token also leaves the environment's set, because APNs has accepted it for an
            /// app's own topic.
            case accepted
            /// The mark for the topic and environment.
            case mark
        }

        /// Lower-case hex.
        public var token: ByteBuffer
        public var reason: Reason
        /// Milliseconds since 1970.
        public var registeredAt: Int64?
        public var environment: ByteBuffer?
        public var topic: ByteBuffer?

        public init(
            _ token: ByteBuffer, _ reason: Reason, registeredAt: Int64? = nil, environment: ByteBuffer? = nil,
            topic: ByteBuffer? = nil
        ) {
            (self.token, self.reason, self.registeredAt) = (token, reason, registeredAt)
            (self.environment, self.topic) = (environment, topic)
        }
    }
}
