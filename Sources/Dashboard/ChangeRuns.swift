import HTTPTypes
import Hummingbird
import Operations
import PrintableText
import PushQueue
import Synchronization
import WebPages

/// A change that is counted first, then confirmed, then carried out, and can be stopped.
///
/// A run lives in this process only. If the process ends, the changes made so far remain, and the rest can be started
/// again.
final class ChangeRun: Sendable {
    enum Phase: Sendable {
        /// The number found so far.
        case counting(Int)
        case ready(ChangePlan)
        /// The number done, and the plan.
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

    let id = Digest.random(8).hex
    let change: any Change
    let desk: Desk
    /// The path of the page from which it was started.
    let back: String
    private let startedAt = ContinuousClock.now
    private let state = Mutex<Phase>(.counting(0))
    private let stopping = Atomic(false)

    /// The time after which a run that nobody confirms is forgotten: what it counted has changed by then.
    private static let patience = Duration.seconds(3600)

    init(_ change: any Change, _ desk: Desk, back: String) {
        (self.change, self.desk, self.back) = (change, desk, back)
    }

    var phase: Phase { state.withLock { $0 } }

    /// True if it uses Redis.
    var isWorking: Bool {
        switch phase {
        case .counting, .running: true
        case .ready, .done, .stopped, .failed: false
        }
    }

    /// True if it has ended, or waits for confirmation for too long.
    var isForgettable: Bool { phase.hasEnded || !isWorking && startedAt.duration(to: .now) > Self.patience }

    private func set(_ phase: Phase) { state.withLock { $0 = phase } }

    private var isStopped: Bool { stopping.load(ordering: .relaxed) }

    /// Stops the work after its current step.
    func stop() {
        stopping.store(true, ordering: .relaxed)
        state.withLock { phase in
            if case .ready = phase { phase = .stopped(ChangeResult([])) }
        }
    }

    /// Counts what would change.
    func count() async {
        do {
            let plan = try await planned(change)
            set(isStopped ? .stopped(ChangeResult([])) : .ready(plan))
        } catch {
            set(.failed(WebError(error).problem))
        }
    }

    private func planned(_ change: some Change) async throws -> ChangePlan {
        try await desk.plan(change) { [self] in set(.counting($0)) }
    }

    /// Starts the work after its confirmation.
    /// - Parameter end: is called at the end.
    /// - Returns: false if the run is not waiting for confirmation.
    func confirm(_ end: @escaping @Sendable () async -> Void) -> Bool {
        let plan = state.withLock { phase -> ChangePlan? in
            guard case .ready(let plan) = phase else { return nil }
            phase = .running(0, plan)
            return plan
        }
        guard let plan else { return false }
        Task {
            do {
                let result = try await applied(change, plan)
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

    private func applied(_ change: some Change, _ plan: ChangePlan) async throws -> ChangeResult {
        var control = ChangeControl()
        control.progress = { [self] in set(.running($0, plan)) }
        control.isStopped = { [self] in isStopped }
        return try await desk.apply(change, plan, control)
    }
}

/// The recent runs of this process.
actor ChangeRuns {
    /// The number of runs that are remembered.
    private static let maximum = 100
    /// The number of runs that can be at work at once.
    private static let concurrent = 4

    private var runs: [ChangeRun] = []

    /// Creates a run and starts counting.
    /// - Parameter isConfirmed: true to carry it out without a further question.
    /// - Throws: ``WebError`` if too many runs are at work, or wait for confirmation.
    func start(_ change: any Change, _ desk: Desk, back: String, isConfirmed: Bool) throws -> ChangeRun {
        let open = runs.count(where: \.isWorking)
        guard open < Self.concurrent else {
            throw WebError(.tooManyRequests, "\(open) bulk runs are in progress; stop one, or wait for it")
        }
        if runs.count >= Self.maximum {
            guard let old = runs.firstIndex(where: \.isForgettable) ?? runs.firstIndex(where: { !$0.isWorking }) else {
                throw WebError(.tooManyRequests, "too many runs are in progress")
            }
            runs.remove(at: old)
        }
        let run = ChangeRun(change, desk, back: back)
        runs.append(run)
        Task {
            await run.count()
            if isConfirmed { _ = run.confirm {} }
        }
        return run
    }

    subscript(id: String) -> ChangeRun? { runs.first { $0.id == id } }
}

/// The page of a run: its confirmation and its progress.
struct ChangeRunPage: DashboardPage {
    let path = "/runs/{id}"
    let section = Section.activity

    func isLive(_ query: Form) -> Bool { true }

    func content(_ request: PageRequest) async throws -> PageContent {
        guard let run = await request.site.runs[request.parameters("id") ?? ""] else {
            throw WebError(.notFound, "unknown run; its changes remain and are listed under Activity")
        }
        let main: HTML = """
            \(Elements.live("run", body(run, request)))
            <p><a href="\(run.back)">Back</a></p>
            """
        return PageContent(title: "Confirm a change", main: main)
    }

    private func body(_ run: ChangeRun, _ request: PageRequest) -> HTML {
        switch run.phase {
        case .counting(let found):
            return
                "<p>Counting: \(Words.number(found)) so far.</p><progress aria-label=\"Counting\"></progress>\(stop(run, request))"
        case .ready(let plan):
            let groups = plan.groups.largestFirst.prefix(20)
                .map { "<li>\(Words.number($0.value)) \($0.key)</li>" as HTML }
            let notes = plan.notes.map { "<p class=\"notice\">\($0)</p>" as HTML }
            guard !plan.isEmpty else {
                return "<p class=\"notice\">Nothing matches, so nothing would change.</p>\(notes)"
            }
            return """
                <p>Chosen: <strong>\(AuditEntry.maskingTokens(plan.subject))</strong></p>
                <div class="problem"><strong>\(plan.question ?? "")</strong><ul>\(groups)</ul></div>\(notes)
                <div class="actions">\(request.form("confirm-run", [("id", run.id)], "<button class=\"danger\">\(plan.command)</button>"))\
                \(stop(run, request, "Cancel"))</div>
                """
        case .running(let done, let plan):
            return """
                <p>\(Words.number(done)) of \(Words.number(plan.count)) \(plan.verb).</p>
                <progress value="\(done)" max="\(max(plan.count, 1))" aria-label="\(plan.verb)"></progress>\(stop(run, request))
                """
        case .done(let result):
            return "<p class=\"notice good\" role=\"status\">\(result.sentence).</p>\(notes(result))"
        case .stopped(let result):
            let done = result.sentence.isEmpty ? "nothing was changed" : result.sentence
            return
                "<p class=\"notice\" role=\"status\">Stopped: \(done). Start it again to continue.</p>\(notes(result))"
        case .failed(let problem):
            return "<p class=\"problem bad\" role=\"alert\">\(problem)</p>"
        }
    }

    private func notes(_ result: ChangeResult) -> HTML {
        HTML(result.notes.map { "<p class=\"notice\">\($0)</p>" as HTML })
    }

    private func stop(_ run: ChangeRun, _ request: PageRequest, _ title: String = "Stop") -> HTML {
        request.form("stop-run", [("id", run.id)], "<button>\(title)</button>")
    }
}
