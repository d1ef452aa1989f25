import FoundationEssentials
import NIOCore
import PrintableText
import PushJob
import Redis

/// Operators' commands about jobs: the campaigns and ids that are cancelled, paused or limited. Lanes read them with their claims.
///
/// A command is one field of a hash, regardless of the number of its jobs. Lanes apply it when they decode a job. When
/// it changes, they also apply it to the jobs that they have not submitted.
public struct JobCommands: Sendable, Equatable {
    /// The jobs that a command is about.
    public enum Target: Sendable, Hashable, CustomStringConvertible {
        case campaign(String)
        case id(String)

        /// The field in Redis.
        public var field: String {
            switch self {
            case .campaign(let name): "campaign:\(name)"
            case .id(let id): "id:\(id)"
            }
        }

        public static func == (left: Target, right: Target) -> Bool { Name(left.field) == Name(right.field) }

        public func hash(into hasher: inout Hasher) { Name(field).hash(into: &hasher) }

        /// The campaign or the id, for people.
        public var description: String {
            switch self {
            case .campaign(let name): "campaign \(name.printable)"
            case .id(let id): "job \(id.printable)"
            }
        }
    }

    /// The command about the jobs of one target.
    public struct Command: Sendable, Equatable {
        /// The state of the jobs, from the mildest to the strictest.
        public enum State: String, Sendable, CaseIterable {
            /// They are sent.
            case running
            /// They are deferred.
            case paused
            /// They are dropped.
            case cancelled

            fileprivate var strictness: Int { Self.allCases.firstIndex(of: self) ?? 0 }
        }

        public var state = State.running
        /// True if cancelled jobs do not become dead letters.
        public var discards = false
        /// The time of the pause or cancellation, in milliseconds since 1970.
        public var since: Int64 = 0
        /// The maximum number of notifications per second.
        public var perSecond: Int?
        /// The time when the limit was set, in milliseconds since 1970.
        public var limitedAt: Int64 = 0
        /// The time of the last change, in milliseconds since 1970.
        public var at: Int64 = 0
        /// The operator, printable.
        public var by: String?
        /// The operator's reason, printable.
        public var reason: String?
        /// True if another client has written the command in a form that can't be read. It then pauses the jobs, unless it cancels them: an
        /// operator wanted to keep them from being sent.
        public private(set) var isDamaged = false

        public init() {}

        /// Reads a field's value. The function `read_command` of the scripts must find the same state.
        public init(_ json: ByteBuffer) {
            struct Form: Decodable {
                var state: Member<String>?
                var discard: Member<Bool>?
                var since, per_second, limited_at, at: Member<Double>?
                var by, reason: Member<String>?
            }
            guard let form = try? JSONDecoder().decode(Form.self, from: Data(json.readableBytesView)) else {
                (state, isDamaged) = (.paused, true)
                return
            }
            /// Returns a member; marks the command as damaged if it has another type or range.
            func read<Value, Read>(_ member: Member<Value>?, _ convert: (Value) -> Read?) -> Read? {
                guard let member else { return nil }
                if let value = member.value.flatMap(convert) { return value }
                isDamaged = true
                return nil
            }
            func time(_ value: Double) -> Int64? { Int64(within: value) }
            state = read(form.state, State.init(rawValue:)) ?? .running
            discards = read(form.discard) { $0 } ?? false
            perSecond = read(form.per_second) { $0 >= 1 ? Int(bounding: $0) : nil }
            limitedAt = read(form.limited_at, time) ?? 0
            // Jobs that were requeued after the cancellation are sent, so an unreadable time counts as the latest one.
            since = read(form.since, time) ?? (form.since == nil ? 0 : .max)
            // These members are only shown.
            at = form.at?.value.flatMap(time) ?? 0
            by = form.by?.value.flatMap { $0.isEmpty ? nil : $0.prefix(200).printable }
            reason = form.reason?.value.flatMap { $0.isEmpty ? nil : $0.prefix(200).printable }
            if isDamaged, state != .cancelled { state = .paused }
        }

        /// A member of the JSON; without a value if it has another type.
        private struct Member<Value: Decodable>: Decodable {
            let value: Value?

            init(from decoder: any Decoder) throws {
                value = try? decoder.singleValueContainer().decode(Value.self)
            }
        }

        /// The state of a job under this command. A job that was requeued after its cancellation is sent.
        fileprivate func state(of job: Job) -> State {
            state == .cancelled && (job.envelope.requeued ?? 0) > since ? .running : state
        }
    }

    /// The version; empty if there was never a command. Lanes report the version that they know.
    public private(set) var version = ""
    private var campaigns: [ByteBuffer: Command] = [:]
    private var ids: [ByteBuffer: Command] = [:]

    public init() {}

    public init(version: String, _ commands: [Target: Command]) {
        self.version = version
        for (target, command) in commands {
            switch target {
            case .campaign(let name): campaigns[ByteBuffer(string: name)] = command
            case .id(let id): ids[ByteBuffer(string: id)] = command
            }
        }
    }

    /// Reads the fields and values of the hash; `nil` for an empty reply.
    public init?(hash: some Sequence<RESPReply.Element>) {
        var elements = hash.makeIterator()
        var isEmpty = true
        while let field = elements.next()?.bytes, let value = elements.next()?.bytes {
            isEmpty = false
            if String(buffer: field) == "version" {
                version = String(buffer: value)
            } else if let name = Self.name(in: field, after: "campaign:") {
                campaigns[name] = Command(value)
            } else if let id = Self.name(in: field, after: "id:") {
                ids[id] = Command(value)
            }
        }
        if isEmpty { return nil }
    }

    private static func name(in field: ByteBuffer, after prefix: StaticString) -> ByteBuffer? {
        let count = prefix.utf8CodeUnitCount
        guard field.readableBytesView.starts(with: prefix.withUTF8Buffer { Array($0) }) else { return nil }
        return field.getSlice(at: field.readerIndex + count, length: field.readableBytes - count)
    }

    public var isEmpty: Bool { campaigns.isEmpty && ids.isEmpty }

    public var commands: [Target: Command] {
        var commands: [Target: Command] = [:]
        for (name, command) in campaigns { commands[.campaign(String(buffer: name))] = command }
        for (id, command) in ids { commands[.id(String(buffer: id))] = command }
        return commands
    }

    /// Returns the command that applies to a job, with the state of this job. Of the commands for its ID and for its campaign, the stricter
    /// one applies. Of two cancellations, the one that keeps the job applies.
    public func command(for job: Job) -> (target: Target, command: Command)? {
        var found: (target: Target, command: Command)?
        func add(_ target: (String) -> Target, _ name: ByteBuffer?, _ commands: [ByteBuffer: Command]) {
            guard let name, var command = commands[name] else { return }
            command.state = command.state(of: job)
            if let other = found?.command {
                let isStricter = command.state.strictness > other.state.strictness
                let keeps = command.state == .cancelled && other.state == .cancelled && other.discards
                // Only a campaign's command can have a limit, and campaigns are added last.
                let limits = command.state == .running && other.state == .running
                guard isStricter || limits || keeps else { return }
            }
            found = (target(String(buffer: name)), command)
        }
        if !ids.isEmpty { add(Target.id, job.id.map(job.text), ids) }
        if !campaigns.isEmpty { add(Target.campaign, job.campaign.map(job.text), campaigns) }
        return found
    }
}
