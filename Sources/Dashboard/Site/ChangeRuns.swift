import HTTPTypes
import Hummingbird
import Operations
import PrintableText
import PushQueue
import Synchronization
import WebPages

/// A change that is counted first, then confirmed, then carried out, and can be stopped.
///
/// A run lives in this process only. If the process ends, the changes made so far remain, and an operator can start the run again.
final class ChangeRun: Sendable {
    enum Phase: Sendable {
        /// The number of things that were found so far.
        case counting(Int)
        case ready(ChangePlan)
        /// The number of things that were changed so far, and the plan.
        case running(Int, ChangePlan)
        case done(ChangeResult)
        case stopped(ChangeResult)
        case failed(String)

        var hasEnded: Bool {
            switch self {
            case .done, .stopped, .failed: true
            case .counting, .ready, .running: false
            }
        }
    }

    private struct State {
        var phase = Phase.counting(0)
        var plan: ChangePlan?
        var isConfirmed = false
        var isStopped = false
        var endedAt: ContinuousClock.Instant?
        var counting: Task<Void, Never>?
    }

    let id = Digest.random(8).hex
    let change: any Change
    let desk: Desk
    private let kind: ActionKind
    private let fields: Fields
    /// The form token of the session that started it; empty for a program.
    let owner: String
    /// The path of the page to show at the end.
    let back: String
    private let startedAt = ContinuousClock.now
    private let state = Mutex(State())

    /// The time after which an unconfirmed run is forgotten, because its count is out of date.
    private static let patience = Duration.seconds(3600)
    /// The time for which pages show a run that has ended.
    private static let afterglow = Duration.seconds(60)

    init(
        _ change: any Change, _ desk: Desk, of kind: ActionKind, _ fields: Fields, owner: String, back: String
    ) {
        (self.change, self.desk, self.kind, self.fields) = (change, desk, kind, fields)
        (self.owner, self.back) = (owner, back)
    }

    var phase: Phase { state.withLock { $0.phase } }

    /// The counted plan; `nil` before the count.
    var plan: ChangePlan? { state.withLock { $0.plan } }

    /// True once the operator has confirmed it: it may have changed something.
    var isConfirmed: Bool { state.withLock { $0.isConfirmed } }

    /// True while it counts or makes changes.
    var isWorking: Bool {
        switch phase {
        case .counting, .running: true
        case .ready, .done, .stopped, .failed: false
        }
    }

    /// True if it has ended, or has waited for its confirmation for too long.
    var isForgettable: Bool { phase.hasEnded || !isWorking && startedAt.duration(to: .now) > Self.patience }

    /// Returns true if a visitor's pages show the run. Before its confirmation only its owner sees it. A run that ended without a
    /// confirmation is not shown.
    func isInView(of visitor: Visitor, at now: ContinuousClock.Instant = .now) -> Bool {
        state.withLock { state in
            switch state.phase {
            case .counting: state.isConfirmed || isOwned(by: visitor)
            // Only the run's own page asks for the confirmation.
            case .ready: false
            case .running: true
            case .done, .stopped, .failed:
                state.isConfirmed && state.endedAt.map { $0.duration(to: now) < Self.afterglow } ?? false
            }
        }
    }

    func isOwned(by visitor: Visitor) -> Bool { !owner.isEmpty && owner == visitor.formToken }

    /// The action that undoes the change; `nil` if there is none.
    var undo: Undo? {
        guard case .done(let result) = phase else { return nil }
        return kind.undo(fields, result)
    }

    private func set(_ phase: Phase) {
        state.withLock { state in
            // An operator has stopped the run in the meantime.
            guard !state.phase.hasEnded else { return }
            state.phase = phase
            if case .ready(let plan) = phase { state.plan = plan }
            if phase.hasEnded, state.endedAt == nil { state.endedAt = .now }
        }
    }

    private var isStopped: Bool { state.withLock { $0.isStopped } }

    /// Stops a count at once, and changes after the current step.
    func stop() {
        state.withLock { state in
            state.isStopped = true
            switch state.phase {
            case .counting, .ready:
                (state.phase, state.endedAt) = (.stopped(ChangeResult([])), .now)
                state.counting?.cancel()
            case .running, .done, .stopped, .failed: break
            }
        }
    }

    /// Starts to count.
    /// - Parameter next: called after the count.
    func start(_ next: @escaping @Sendable () async -> Void) {
        let task = Task {
            await count()
            await next()
        }
        state.withLock { $0.counting = task }
    }

    /// Ends a run that can't be carried out.
    func refuse(_ problem: String) { set(.failed(problem)) }

    /// Waits up to 400 ms for the end of the current work, so that most runs need no page for their progress.
    func settle() async throws {
        let end = ContinuousClock.now + .milliseconds(400)
        while isWorking, .now < end { try await Task.sleep(for: .milliseconds(10)) }
    }

    func count() async {
        do {
            let plan = try await desk.plan(change) { [self] in set(.counting($0)) }
            set(isStopped ? .stopped(ChangeResult([])) : .ready(plan))
        } catch {
            set(.failed(WebError(error).problem))
        }
    }

    /// Starts the work after its confirmation.
    /// - Returns: false if the run is not waiting for confirmation.
    func confirm(_ end: @escaping @Sendable () async -> Void) -> Bool {
        let plan = state.withLock { state -> ChangePlan? in
            guard case .ready(let plan) = state.phase else { return nil }
            (state.phase, state.isConfirmed) = (.running(0, plan), true)
            return plan
        }
        guard let plan else { return false }
        Task {
            do {
                var control = ChangeControl()
                control.progress = { [self] in set(.running($0, plan)) }
                control.isStopped = { [self] in isStopped }
                let result = try await desk.apply(change, plan, control)
                set(
                    result.error.map { .failed("\(result.sentence): \($0)") }
                        ?? (isStopped ? .stopped(result) : .done(result)))
            } catch {
                set(.failed(WebError(error).problem))
            }
            await end()
        }
        return true
    }
}

/// The recent runs of this process.
actor ChangeRuns {
    private static let maximum = 100
    /// The maximum numbers of simultaneous runs: of those that make changes, and of those that count.
    private static let (concurrent, counting) = (4, 16)

    private var runs: [ChangeRun] = []

    /// Adds a run and starts counting.
    /// - Parameters:
    ///   - isConfirmed: true to make the change without a question.
    ///   - end: called when a change without a question has ended.
    /// - Throws: ``WebError`` if too many runs count or are kept.
    func start(_ run: ChangeRun, isConfirmed: Bool, _ end: @escaping @Sendable () async -> Void) throws {
        let counting = runs.count { if case .counting = $0.phase { true } else { false } }
        guard counting < Self.counting else {
            throw WebError(.tooManyRequests, "\(counting) counts are in progress; stop one, or wait until one ends")
        }
        if runs.count >= Self.maximum {
            guard let old = runs.firstIndex(where: \.isForgettable) ?? runs.firstIndex(where: { !$0.isWorking }) else {
                throw WebError(.tooManyRequests, "too many runs are in progress; stop one, or wait until one ends")
            }
            runs.remove(at: old)
        }
        runs.append(run)
        run.start { [self] in
            guard isConfirmed else { return }
            do { _ = try await confirm(run, end) } catch { run.refuse(WebError(error).problem) }
        }
    }

    /// Starts the work of a run after its confirmation.
    /// - Returns: false if the run is not waiting for confirmation.
    /// - Throws: ``WebError`` if too many runs are at work.
    func confirm(_ run: ChangeRun, _ end: @escaping @Sendable () async -> Void) throws -> Bool {
        let working = runs.count { if case .running = $0.phase { true } else { false } }
        guard working < Self.concurrent else {
            throw WebError(.tooManyRequests, "\(working) bulk runs are in progress; stop one, or wait until one ends")
        }
        return run.confirm(end)
    }

    subscript(id: String) -> ChangeRun? { runs.first { $0.id == id } }

    /// Returns the runs that a visitor's pages show, the newest first.
    func inView(of visitor: Visitor) -> [ChangeRun] { runs.reversed().filter { $0.isInView(of: visitor) } }
}
