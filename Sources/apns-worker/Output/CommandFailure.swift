import ArgumentParser
import Operations
import PushQueue
import Redis

/// The exit statuses of all commands, from sysexits(3). An interrupted command ends with 130 or 143.
enum ExitStatus: Int32, CaseIterable {
    case attention = 1
    case usage = 64
    case unavailable = 69
    case refused = 77
    case configuration = 78

    /// The meaning, for help and documentation.
    var meaning: String {
        switch self {
        case .attention:
            "something needs attention, was done in part, or matched nothing: a refused line of `enqueue`, a failed `check`, "
                + "`resume` of a queue that is not paused"
        case .usage: "wrong usage, or a missing confirmation: without a terminal, pass `--yes`"
        case .unavailable:
            "Redis or APNs cannot be reached, or Redis is unusable: full, loading, or a replica"
        case .refused: "Redis or APNs refused the login"
        case .configuration: "a setting is missing or wrong"
        }
    }

    /// All statuses with their meanings, including success and signals.
    static var reference: [(status: String, meaning: String)] {
        [("0", "done")] + allCases.map { ("\($0.rawValue)", $0.meaning) }
            + [("130, 143", "interrupted by SIGINT or SIGTERM; a worker drains and exits with 0 instead")]
    }
}

/// An error that is only a text. The caller adds the place of the mistake, such as a flag, and the exit status.
struct Mistake: Error, CustomStringConvertible {
    let description: String

    init(_ description: String) { self.description = description }
}

/// An error that ends a command with a particular exit status.
struct CommandFailure: Error, CustomStringConvertible {
    let status: ExitStatus
    let message: String

    init(_ status: ExitStatus, _ message: String) {
        self.status = status
        self.message = message
    }

    var description: String { message }
}

extension CommandFailure {
    private static let refusals: Set = ["NOAUTH", "WRONGPASS", "NOPERM"]

    init(_ error: RedisError) {
        let status: ExitStatus =
            switch error {
            case .authentication: .refused
            case .server(let answer) where Self.refusals.contains(answer.prefix): .refused
            case .server(let answer): answer.isTemporary ? .unavailable : .attention
            case .commandTooLarge: .attention
            case .notConnected, .connectionLost, .timeout, .protocolViolation, .connect: .unavailable
            }
        self.init(status, "\(error)")
    }

    init(_ error: QueueFailure) {
        switch error {
        case .redis(let error): self.init(error)
        case .unexpectedReply: self.init(.attention, "\(error)")
        case .resharding: self.init(.unavailable, "\(error)")
        }
    }

    /// Returns the message about an error that ended a command.
    static func message(of error: any Error) -> String {
        switch error {
        case let error as ValidationError: error.message
        case let error as CommandFailure: error.message
        default: "\(error)"
        }
    }

    /// Runs `body`, and converts errors of changes and of Redis to errors with the matching exit statuses.
    static func mapping<Result>(_ body: () async throws -> Result) async throws -> Result {
        do {
            return try await body()
        } catch let error as RedisError {
            throw CommandFailure(error)
        } catch let error as QueueFailure {
            throw CommandFailure(error)
        } catch let refusal as ChangeRefusal {
            throw CommandFailure(refusal.kind == .invalid ? .usage : .attention, refusal.message)
        } catch let error as FieldMistake {
            throw ValidationError(error.text(.flag))
        } catch let error as Fleet.Contradiction {
            throw CommandFailure(.configuration, error.description)
        }
    }
}

/// The exit statuses of `status --check`, as defined for Nagios plugins.
enum NagiosStatus: Int32, CaseIterable {
    case ok = 0
    case warning = 1
    case critical = 2
    case unknown = 3

    /// The first word of the line that `status --check` prints.
    var word: String { "\(self)".uppercased() }

    /// The conditions for the status, for help and documentation.
    var meaning: String {
        switch self {
        case .ok: "nothing needs attention"
        case .warning: Self.conditions(.warning)
        case .critical: Self.conditions(.critical) + "; or Redis cannot be reached"
        case .unknown: "the command or the settings are wrong, or Redis refuses the login"
        }
    }

    /// Returns the conditions of the problems of a severity, from the table.
    private static func conditions(_ severity: Problem.Kind.Severity) -> String {
        Problem.table.filter { $0.isInStatus && $0.severity == severity }.map(\.condition).joined(separator: "; ")
    }
}
