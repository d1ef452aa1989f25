import HTTPTypes
import Hummingbird
import Operations
import PushQueue
import Synchronization
import WebPages

/// A change of many jobs, dead letters or tokens, which is counted first, then confirmed, then carried out, and can be
/// stopped.
///
/// A run lives in this process only. If the process ends, the changes made so far remain, and the rest can be started
/// again.
final class BulkRun: Sendable {
    enum Phase: Sendable {
        /// The number found so far.
        case counting(Int)
        case ready(Count)
        /// The number done, and the number found.
        case running(Int, of: Int)
        case done(Int)
        case stopped(Int)
        case failed(String)

        var hasEnded: Bool {
            switch self {
            case .done, .stopped, .failed: true
            case .counting, .ready, .running: false
            }
        }
    }

    struct Count: Sendable {
        var total = 0
        /// By state or reason.
        var groups: [String: Int] = [:]
        var notes: [String] = []
    }

    /// The work of a run.
    struct Work: Sendable {
        /// The verb and its past participle, such as `Requeue` and `requeued`.
        var verbs: (command: String, past: String)
        /// The name of the counted objects: `jobs`, `dead letters` or `tokens`.
        var noun: String
        /// The filter in words.
        var subject: String
        var action: AuditEntry.Action
        /// The section that the run was started from.
        var section: Section
        var isDangerous = true
        var count: @Sendable (_ progress: @Sendable (Int) -> Void) async throws -> Count
        /// Carries out the work and returns the number of changed objects.
        var change:
            @Sendable (_ count: Count, _ progress: @Sendable (Int) -> Void, _ isStopped: @escaping @Sendable () -> Bool)
                async throws -> Int
    }

    let id: String
    let work: Work
    let visitor: Visitor
    private let state = Mutex<Phase>(.counting(0))
    private let stopping = Atomic(false)

    init(_ work: Work, by visitor: Visitor) {
        id = Digest.hex(Digest.random(8))
        (self.work, self.visitor) = (work, visitor)
    }

    var phase: Phase { state.withLock { $0 } }

    private func set(_ phase: Phase) { state.withLock { $0 = phase } }

    /// Stops the work after its current step.
    func stop() {
        stopping.store(true, ordering: .relaxed)
        state.withLock { phase in
            if case .ready = phase { phase = .stopped(0) }
        }
    }

    /// Counts the objects.
    func count() async {
        do {
            let count = try await work.count { [self] in set(.counting($0)) }
            set(stopping.load(ordering: .relaxed) ? .stopped(0) : .ready(count))
        } catch {
            set(.failed("while counting: \(WebError(error).problem)"))
        }
    }

    /// Starts the work after its confirmation.
    /// - Returns: false if the run is not waiting for confirmation.
    func confirm(_ site: Site) -> Bool {
        let count = state.withLock { phase -> Count? in
            guard case .ready(let count) = phase else { return nil }
            phase = .running(0, of: count.total)
            return count
        }
        guard let count else { return false }
        Task {
            let last = Mutex(0)
            do {
                let changed = try await work.change(
                    count,
                    { [self] done in
                        last.withLock { $0 = done }
                        set(.running(done, of: count.total))
                    }, { [self] in stopping.load(ordering: .relaxed) })
                set(stopping.load(ordering: .relaxed) ? .stopped(changed) : .done(changed))
                last.withLock { $0 = changed }
            } catch {
                set(.failed("after \(Words.number(last.withLock { $0 })): \(WebError(error).problem)"))
            }
            await site.record(work.action, work.subject, by: visitor, count: last.withLock { $0 })
        }
        return true
    }
}

/// The recent bulk runs of this process.
actor BulkRuns {
    /// The number of runs that are remembered.
    private static let maximum = 100
    /// The number of runs that can be in progress at once.
    private static let concurrent = 4

    private var runs: [BulkRun] = []

    /// Creates a run and starts counting.
    /// - Throws: ``WebError`` if too many runs are in progress.
    func start(_ work: BulkRun.Work, by visitor: Visitor) throws -> BulkRun {
        let open = runs.count { run in
            if case .running = run.phase { return true }
            if case .counting = run.phase { return true }
            return false
        }
        guard open < Self.concurrent else {
            throw WebError(.tooManyRequests, "\(open) bulk runs are in progress; stop one, or wait for it")
        }
        let run = BulkRun(work, by: visitor)
        runs.append(run)
        if runs.count > Self.maximum, let old = runs.firstIndex(where: \.phase.hasEnded) { runs.remove(at: old) }
        Task { await run.count() }
        return run
    }

    subscript(id: String) -> BulkRun? { runs.first { $0.id == id } }
}

/// The page of a bulk run: its confirmation and its progress.
struct BulkRunPage: DashboardPage {
    let path = "/runs/{id}"
    let section = Section.activity

    func isLive(_ query: Form) -> Bool { true }

    func content(_ request: PageRequest) async throws -> PageContent {
        guard let run = await request.site.runs[request.parameters("id") ?? ""] else {
            throw WebError(.notFound, "unknown run; its changes remain and are listed under Activity")
        }
        let work = run.work
        let title = "\(work.verbs.command) \(work.noun)"
        let main: HTML = """
            <p>Chosen: <strong>\(work.subject)</strong></p>
            \(Elements.live("run", body(run, request)))
            <p>\(request.link(work.section.segments, "Back to \(work.section.title)"))</p>
            """
        return PageContent(title: title, main: main)
    }

    private func body(_ run: BulkRun, _ request: PageRequest) -> HTML {
        let work = run.work
        func count(_ number: Int) -> String { "\(Words.number(number)) \(work.noun)" }
        switch run.phase {
        case .counting(let found):
            return
                "<p>Counting: \(count(found)) so far.</p><progress aria-label=\"Counting\"></progress>\(stop(run, request))"
        case .ready(let found):
            let groups = found.groups.largestFirst.prefix(20)
                .map { "<li>\(Words.number($0.value)) \($0.key)</li>" as HTML }
            let notes = found.notes.map { "<p class=\"notice\">\($0)</p>" as HTML }
            guard found.total > 0 else {
                return "<p class=\"notice\">Nothing matches, so nothing would change.</p>\(notes)"
            }
            let button: HTML =
                "<button class=\"\(work.isDangerous ? "danger" : "main")\">\(work.verbs.command) \(count(found.total))</button>"
            return """
                <div class="problem"><strong>\(work.verbs.command) \(count(found.total))?</strong><ul>\(groups)</ul></div>\(notes)
                <div class="actions">\(request.form("confirm-run", [("id", run.id)], button))\(stop(run, request, "Cancel"))</div>
                """
        case .running(let done, let total):
            return """
                <p>\(count(done)) of \(Words.number(total)) \(work.verbs.past).</p>
                <progress value="\(done)" max="\(max(total, 1))" aria-label="\(work.verbs.past)"></progress>\(stop(run, request))
                """
        case .done(let changed):
            return "<p class=\"notice good\" role=\"status\">\(count(changed)) \(work.verbs.past).</p>"
        case .stopped(let changed):
            return
                "<p class=\"notice\" role=\"status\">Stopped: \(count(changed)) \(work.verbs.past). Start it again to continue.</p>"
        case .failed(let problem):
            return
                "<p class=\"problem bad\" role=\"alert\">Stopped by an error \(problem). Start it again to continue.</p>"
        }
    }

    private func stop(_ run: BulkRun, _ request: PageRequest, _ title: String = "Stop") -> HTML {
        request.form("stop-run", [("id", run.id)], "<button>\(title)</button>")
    }
}
