import PushQueue

/// A problem that needs an operator: a kind from the table of problems, and a finding of that kind.
package struct Problem: Sendable {
    package let kind: Kind
    private let finding: Finding
    /// The fleet that has the problem, for commands.
    package let access: FleetAccess

    init(_ kind: Kind, _ finding: Finding, _ access: FleetAccess) {
        (self.kind, self.finding, self.access) = (kind, finding, access)
    }

    package var isCritical: Bool { kind.severity == .critical }
    package var object: Object { finding.object }
    package var message: String { finding.message }
    /// The time of its beginning, in milliseconds since 1970, if known.
    package var since: Int64? { finding.since }
    /// The first thing to do, as a clause; empty if that is a remedy.
    package var hint: String { finding.hint ?? kind.hint }
    /// The remedies. An operator should try them in this order.
    package var remedies: [Remedy] { finding.remedies }

    package var subject: String { object.name }

    /// The action that solves the problem, in words.
    package var advice: String {
        ([hint] + remedies.compactMap { $0.words(access) }).filter { !$0.isEmpty }.joined(separator: "; ")
    }

    /// A problem as a row of the table measures it.
    package struct Finding: Sendable {
        let object: Object
        let message: String
        let since: Int64?
        /// The first thing to do, as a clause; `nil` to use the hint of the row.
        let hint: String?
        let remedies: [Remedy]

        init(
            _ object: Object, _ message: String, since: Int64? = nil, hint: String? = nil, _ remedies: [Remedy] = []
        ) {
            (self.object, self.message, self.since) = (object, message, since)
            (self.hint, self.remedies) = (hint, remedies)
        }
    }

    package enum Object: Sendable, Equatable {
        case server(String)
        case queue(String)
        case app(String)
        case worker(String)
        case campaign(String)
        case key(String)
        case job(String)
        /// A topic, a credential or an endpoint, and the app that uses it.
        case topic(String, app: String?)
        case credential(String, app: String?)
        case endpoint(String, app: String?)
        /// The state that all queues share, by its prefix.
        case shared(String)

        package var name: String {
            switch self {
            case .server(let name), .queue(let name), .app(let name), .worker(let name), .campaign(let name),
                .key(let name), .shared(let name), .job(let name), .topic(let name, _), .credential(let name, _),
                .endpoint(let name, _):
                name
            }
        }
    }
}

extension Problem {
    /// A kind of problem: a row of ``table``.
    ///
    /// Everything that names the kind is made of this row: `status` and the meanings of `status --check`, the cards and
    /// the API of the dashboard, the advice of `/readyz`, the rules for Prometheus, and the runbook.
    package struct Kind: Sendable {
        package enum Severity: String, Sendable, CaseIterable {
            /// Jobs are not sent, or may be lost.
            case critical
            case warning
            /// Not a problem of a fleet at work: only `check` or `/readyz` reports it.
            case notice
        }

        /// The part of a fleet that has the problem, and the sections of the runbook.
        package enum Part: String, Sendable, CaseIterable { case redis, queues, workers, apps }

        /// The name, for programs. It does not change.
        package let name: String
        package let part: Part
        package let severity: Severity
        /// The condition, as a clause in Markdown.
        package let condition: String
        /// The first thing to do, as a clause, where it is the same for all problems of the kind.
        package let hint: String
        /// The first thing to do, as sentences in Markdown.
        package let action: String
        package let alert: Alert?
        /// Finds the problems of the kind in a fleet's status; `nil` if only metrics show them.
        let find: (@Sendable (FleetStatus, ProblemLimits) -> [Finding])?

        init(
            _ name: String, _ part: Part, _ severity: Severity, _ condition: String, hint: String = "",
            action: String = "", alert: Alert? = nil,
            find: (@Sendable (FleetStatus, ProblemLimits) -> [Finding])? = nil
        ) {
            (self.name, self.part, self.severity, self.condition) = (name, part, severity, condition)
            (self.hint, self.alert, self.find) = (hint, alert, find)
            self.action = action.isEmpty ? hint.capitalizedFirst + "." : action
        }

        /// True if a status can have the problem.
        package var isInStatus: Bool { find != nil && severity != .notice }
    }

    /// A rule for Prometheus that finds a kind of problem in the metrics of workers.
    package struct Alert: Sendable {
        package enum Severity: String, Sendable {
            /// Act at once, even at night.
            case page
            /// Act within a working day.
            case ticket
        }

        package let name: String
        /// The condition must last for this time, such as `5m`.
        package let duration: String?
        package let severity: Severity
        /// Templates: the alert in one line, and its effect.
        package let summary, description: String
        package let expression: String

        init(
            _ name: String, for duration: String? = nil, _ severity: Severity, _ summary: String,
            _ description: String, _ expression: String
        ) {
            (self.name, self.duration, self.severity) = ("ApnsWorker" + name, duration, severity)
            (self.summary, self.description, self.expression) = (summary, description, expression)
        }
    }

    package static func kind(_ name: String) -> Kind? { table.first { $0.name == name } }
}

extension Problem: Shown {
    package static let columns = Columns<Self>(
        "Problem", "A problem that needs an operator.",
        [
            .init("kind", "Kind of the problem, as in docs/operating.md.", \.kind.name),
            .init("severity", "Severity:", as: .choice(["critical", "warning"]), \.kind.severity.rawValue),
            .init("subject", "Name of the thing that has the problem.", \.subject),
            .init("message", "Problem, as a sentence.", \.message),
            .init("since", "Time at which the problem began, if known.", as: .time, \.since),
            .init("advice", "Steps that help, as a sentence.", \.advice),
            .init("commands", "Commands that help.") { problem in problem.remedies.map { $0.command(problem.access) } },
        ])
}

/// The limits beyond which something needs attention.
package struct ProblemLimits: Sendable {
    /// The maximum age of the oldest job, in ms; `nil` for ``defaultAge``, or ``defaultPausedAge`` in a paused queue.
    package var age: Int64?
    /// The maximum number of a queue's dead letters; `nil` for any number.
    package var dead: Int?
    /// The maximum share of dead letters in the day's outcomes of a queue. `nil` for ``defaultDeadShare`` if there are at least
    /// ``leastDead`` dead letters.
    package var deadShare: Double?
    /// The maximum share of invalid tokens among the tokens that a queue has sent to today. `nil` for ``defaultInvalidShare`` if there are
    /// at least ``leastInvalid`` invalid tokens.
    package var invalidShare: Double?

    package static let defaultAge: Int64 = 10 * 60_000
    package static let defaultPausedAge: Int64 = 60 * 60_000
    package static let defaultDeadShare = 0.01
    package static let leastDead = 10
    package static let defaultInvalidShare = 0.2
    package static let leastInvalid = 100

    package init() {}
}
