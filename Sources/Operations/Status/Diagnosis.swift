import PushQueue

/// The diagnosis of a fleet: the problems that its status shows. Has no I/O.
package struct Diagnosis: Sendable {
    let status: FleetStatus
    let limits: ProblemLimits
    private let access: FleetAccess
    /// The queues whose server refuses writes.
    let unwritableQueues: Set<String>

    /// - Parameters:
    ///   - limits: the limits beyond which something is a problem.
    ///   - access: the fleet, for the commands that help.
    package init(
        _ status: FleetStatus, _ limits: ProblemLimits = ProblemLimits(), _ access: FleetAccess = FleetAccess()
    ) {
        (self.status, self.limits, self.access) = (status, limits, access)
        unwritableQueues = status.unwritableQueues
    }

    /// The queues that could be read.
    var queues: [QueueStatus] { status.queues.filter { $0.error == nil } }

    /// The problems, the worst first, otherwise in the order of the table.
    package var problems: [Problem] {
        let problems = Problem.table.filter(\.isInStatus).flatMap { kind in
            (kind.find?(self) ?? []).map { Problem(kind, $0, access) }
        }
        return problems.filter(\.isCritical) + problems.filter { !$0.isCritical }
    }
}
