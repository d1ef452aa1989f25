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
        /// Templates of the alert in a line, and of its effect.
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
