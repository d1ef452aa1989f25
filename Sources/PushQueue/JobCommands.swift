import FoundationEssentials
import NIOCore
import PrintableText
import PushJob
import Redis

/// Operators' commands about jobs: the campaigns and ids that are cancelled, paused or limited. Lanes read them with
/// their claims.
///
/// A command is one field of a hash, regardless of the number of its jobs. Lanes apply it when they decode a job. When
/// it changes, they also apply it to the jobs that they have not submitted.
package struct JobCommands: Sendable, Equatable {
    /// The jobs that a command is about.
    package enum Target: Sendable, Hashable, CustomStringConvertible {
        /// The jobs of a campaign.
        case campaign(String)
        /// The jobs with an id.
        case id(String)

        /// The field in Redis.
        package var field: String {
            switch self {
            case .campaign(let name): "campaign:\(name)"
            case .id(let id): "id:\(id)"
            }
        }

        /// The campaign or the id, for people.
        package var description: String {
            switch self {
            case .campaign(let name): "campaign \(name.printable)"
            case .id(let id): "job \(id.printable)"
            }
        }
    }

    /// The command about the jobs of one target.
    package struct Command: Sendable, Equatable {
        /// The state of the jobs.
        package enum State: String, Sendable {
            /// They are sent.
            case running
            /// They are deferred.
            case paused
            /// They are dropped.
            case cancelled
        }

        /// The state of the jobs.
        package var state = State.running
        /// True if cancelled jobs do not become dead letters.
        package var discards = false
        /// The time of the pause or cancellation, in milliseconds since 1970.
        package var since: Int64 = 0
        /// The maximum number of notifications per second.
        package var perSecond: Int?
        /// The time at which the limit was set, in milliseconds since 1970.
        package var limitedAt: Int64 = 0
        /// The time of the last change, in milliseconds since 1970.
        package var at: Int64 = 0
        /// The operator, printable.
        package var by: String?
        /// The operator's reason, printable.
        package var reason: String?

        package init() {}

        /// Reads a field's value; `nil` if it is not a command.
        package init?(_ json: ByteBuffer) {
            struct Form: Decodable {
                var state: String?
                var discard: Bool?
                var since: Double?
                var per_second: Double?
                var limited_at: Double?
                var at: Double?
                var by: String?
                var reason: String?
            }
            guard let form = try? JSONDecoder().decode(Form.self, from: Data(json.readableBytesView)) else {
                return nil
            }
            func time(_ value: Double?) -> Int64 { value.flatMap { Int64(within: $0) } ?? 0 }
            state = form.state.flatMap(State.init(rawValue:)) ?? .running
            discards = form.discard ?? false
            (since, limitedAt, at) = (time(form.since), time(form.limited_at), time(form.at))
            perSecond = form.per_second.map { Int(bounding: $0) }.flatMap { $0 > 0 ? $0 : nil }
            by = form.by.flatMap { $0.isEmpty ? nil : $0.prefix(200).printable }
            reason = form.reason.flatMap { $0.isEmpty ? nil : $0.prefix(200).printable }
        }
    }

    /// The version; empty if there was never a command. Lanes report the version that they know.
    package private(set) var version = ""
    private var campaigns: [ByteBuffer: Command] = [:]
    private var ids: [ByteBuffer: Command] = [:]

    /// No commands.
    package init() {}

    package init(version: String, _ commands: [Target: Command]) {
        self.version = version
        for (target, command) in commands {
            switch target {
            case .campaign(let name): campaigns[ByteBuffer(string: name)] = command
            case .id(let id): ids[ByteBuffer(string: id)] = command
            }
        }
    }

    /// Reads the fields and values of the hash; `nil` for an empty reply.
    package init?(hash: some Sequence<RESPReply.Element>) {
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

    /// True if there is no command.
    package var isEmpty: Bool { campaigns.isEmpty && ids.isEmpty }

    /// The commands by target.
    package var commands: [Target: Command] {
        var commands: [Target: Command] = [:]
        for (name, command) in campaigns { commands[.campaign(String(buffer: name))] = command }
        for (id, command) in ids { commands[.id(String(buffer: id))] = command }
        return commands
    }

    /// Returns the command about a job: the one for its id, or else the one for its campaign.
    package func command(for job: Job) -> (target: Target, command: Command)? {
        if !ids.isEmpty, let id = job.id.map(job.text), let command = ids[id] {
            return (.id(String(buffer: id)), command)
        }
        if !campaigns.isEmpty, let campaign = job.campaign.map(job.text), let command = campaigns[campaign] {
            return (.campaign(String(buffer: campaign)), command)
        }
        return nil
    }
}
