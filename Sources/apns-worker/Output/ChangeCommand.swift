import ArgumentParser
import FoundationEssentials
import Glibc
import Operations
import PrintableText
import PushQueue
import PushWorker
import Redis
import Synchronization

/// Makes a change for a command: counts, asks, changes, and reports.
struct ChangeCommand {
    var isJSON = false
    var isDryRun = false
    /// True with `--yes`.
    var isConfirmed = false
    /// Returns true if the command asks before it carries out a plan.
    var asks: (ChangePlan) -> Bool = { $0.question != nil }
    /// The things that the command changes. They decide the members of its JSON.
    enum Things { case jobs, deadLetters, tokens, records }

    var things = Things.jobs
    /// The exit status if nothing matches.
    var nothing: Int32 = 0
    /// Returns the line about a part of the result; `nil` for none.
    var line: ((ChangePart) -> String?)?

    /// Makes a change.
    /// - Returns: the result; `nil` if nothing was to be done, or with `--dry-run`.
    /// - Throws: an exit code, if the change is not complete.
    @discardableResult
    func run(_ change: some Change, _ desk: Desk) async throws -> ChangeResult? {
        let plan = try await CommandFailure.mapping { try await desk.plan(change) }
        if isDryRun || plan.isEmpty {
            for part in plan.parts where isJSON || part.count > 0 { try report(part, "would have \(plan.verb) ", plan) }
            for note in plan.notes { Terminal.note(note + "\n") }
            if plan.isEmpty, nothing != 0 { throw ExitCode(nothing) }
            return nil
        }
        let twins = isConfirmed ? [] : try await CommandFailure.mapping { try await desk.twinNotes(of: change) }
        if asks(plan) || !twins.isEmpty {
            for note in plan.notes + twins where !isConfirmed { Terminal.note(note + "\n") }
            try Confirmation.demand(plan.question ?? "Change \(plan.subject.shown)?", isGiven: isConfirmed)
        }
        Interruption.watch()
        // If the command waits afterwards, a signal ends it at once.
        defer { Interruption.endProcess() }
        let progress = Progress(plan.verb, of: plan.count, isShown: !isJSON && plan.isCounted)
        var control = ChangeControl()
        control.isStopped = { Interruption.isRequested }
        control.progress = { progress.draw($0) }
        control.phase = { progress.enter($0) }
        control.note = { progress.note($0) }
        let result = try await CommandFailure.mapping { try await desk.apply(change, plan, control) }
        progress.end()
        for part in result.parts where isJSON || !part.sentence.isEmpty { try report(part, "", plan) }
        for note in result.notes where !isJSON { Terminal.note(note + "\n") }
        if let error = result.error {
            Terminal.note("\(error)\n" + (plan.isCounted ? "repeat the command to continue\n" : ""))
            throw ExitCode(ExitStatus.attention.rawValue)
        }
        if let doubt = result.doubt {
            Terminal.note("\(doubt) The change also applies to jobs that are enqueued later.\n")
            throw ExitCode(ExitStatus.attention.rawValue)
        }
        if Interruption.isRequested {
            if plan.isCounted { Terminal.note("\(plan.rest); repeat the command to continue\n") }
            throw ExitCode(130)
        }
        return result
    }

    /// Makes a change that can use the set of invalid tokens.
    /// - Parameter queues: true if the change also uses the queues.
    func run(
        _ settings: Settings, queues: Bool, _ change: (Fleet) async throws -> some Change
    ) async throws {
        try await CommandRedis(settings).withInvalidTokens { client in
            try await FleetOptions.withFleet(settings, searches: true) { fleet in
                var desk = try Desk(fleet, queues ? await fleet.notedQueues() : [], settings)
                desk.invalidTokens = client
                try await run(change(fleet), desk)
            }
        }
    }

    private func report(_ part: ChangePart, _ start: String, _ plan: ChangePlan) throws {
        guard isJSON else {
            if let line = start.isEmpty ? line.map({ $0(part) }) ?? part.sentence : start + part.sentence {
                print(line)
            }
            if let explanation = part.explanation { print(explanation) }
            return
        }
        Terminal.print(try Self.json(part, plan, self) + "\n")
    }

    private static func json(_ part: ChangePart, _ plan: ChangePlan, _ command: ChangeCommand) throws -> String {
        if let report = part.report { return try JSONLine.text(report, keys: .convertToSnakeCase) }
        struct Object: Encodable {
            let queue: String?
            let action: String
            let count: Int
            let byReason, byState, byKind: [String: Int]?
            let notifications, claimed, looked: Int?
            let dryRun, interrupted: Bool
            let error: String?
        }
        let (isOfJobs, isOfRecords) = (command.things == .jobs, command.things == .records)
        return try JSONLine.text(
            Object(
                queue: part.queue, action: plan.verb, count: part.count,
                byReason: isOfJobs || isOfRecords ? nil : part.groups, byState: isOfJobs ? part.groups : nil,
                byKind: isOfRecords ? part.groups : nil,
                notifications: isOfJobs ? part.notifications : nil,
                claimed: isOfJobs || isOfRecords ? part.claimed : nil,
                looked: command.things == .deadLetters ? part.looked : nil, dryRun: command.isDryRun,
                interrupted: Interruption.isRequested, error: part.error), keys: .convertToSnakeCase)
    }

    /// The progress of a command, as one line on a terminal.
    private final class Progress: Sendable {
        private struct State {
            var last: ContinuousClock.Instant?
            /// The time and the count at the first call in the phase.
            var first: (at: ContinuousClock.Instant, count: Int)?
            var phase = ""
        }

        /// The time to measure before the remaining time is estimated.
        private static let settled = Duration.seconds(3)

        private let verb: String
        private let expected: Int
        private let isShown: Bool
        private let state = Mutex(State())

        init(_ verb: String, of expected: Int, isShown: Bool) {
            self.verb = verb
            self.expected = expected
            self.isShown = isShown && isatty(STDERR_FILENO) == 1
        }

        func draw(_ count: Int) {
            guard isShown else { return }
            let now = ContinuousClock.now
            let phase = state.withLock { $0.phase.isEmpty ? "" : $0.phase + ": " }
            let left: Duration?? = state.withLock { state in
                guard state.last.map({ now - $0 > .milliseconds(100) }) ?? true else { return nil }
                state.last = now
                guard let first = state.first else {
                    state.first = (now, count)
                    return .some(nil)
                }
                guard now - first.at >= Self.settled, count > first.count else { return .some(nil) }
                return (now - first.at) * (Double(max(0, expected - count)) / Double(count - first.count))
            }
            guard let left else { return }
            let time = left.map { ", about \(Words.brief(Int64($0 / .milliseconds(1)))) left" } ?? ""
            Terminal.note("\r\(phase)\(verb) \(Words.number(count)) of \(Words.number(expected))\(time)\u{1B}[K")
        }

        /// Shows the phase. Each phase has a new estimate of the remaining time.
        func enter(_ phase: String) {
            let isNew = state.withLock { state in
                guard state.phase != phase else { return false }
                state.phase = phase
                state.first = nil
                state.last = phase.isEmpty ? state.last : .now
                return true
            }
            if isNew, isShown, !phase.isEmpty { Terminal.note("\r\(phase)\u{1B}[K") }
        }

        func note(_ text: String) {
            end()
            Terminal.note(text + "\n")
        }

        func end() {
            if state.withLock({ $0.last != nil }) { Terminal.note("\r\u{1B}[K") }
        }
    }
}

extension Desk {
    init(_ fleet: Fleet, _ queues: [QueueKeys], _ settings: Settings, isForced: Bool = false) throws {
        self.init(fleet, person: Person.name, via: .cli, queues: queues) { error in
            Terminal.note("note: this is done, but could not be recorded in the activity: \(error)\n")
        }
        configuredQueues = settings.configuredQueueNames
        configuredApps = try settings.appNames
        self.isForced = isForced
        forceHint = " --force continues anyway"
    }
}

/// Reads fields that come from flags.
/// - Throws: a usage error that names the flag.
func readingFlags<Value>(_ body: () throws(FieldMistake) -> Value) throws -> Value {
    do {
        return try body()
    } catch {
        throw ValidationError(error.text(.flag))
    }
}

/// The operator who runs this command.
enum Person {
    /// The system's name for the user; in a container there may be none.
    private static var account: String? {
        guard let entry = getpwuid(getuid()), let name = entry.pointee.pw_name else { return nil }
        return String(cString: name)
    }

    /// The names of the user and the host, as far as they are available.
    static var name: String {
        let environment = ProcessInfo.processInfo.environment
        let user = ["SUDO_USER", "USER", "LOGNAME"].compactMap { environment[$0] }.first { !$0.isEmpty }
        return "\(user ?? account ?? "uid \(getuid())")@\(HostName.current)".printable
    }
}
