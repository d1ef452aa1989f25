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

    private struct State {
        var phase = Phase.counting(0)
        var plan: ChangePlan?
        var isConfirmed = false
        var endedAt: ContinuousClock.Instant?
        var counting: Task<Void, Never>?
    }

    let id = Digest.random(8).hex
    let change: any Change
    let desk: Desk
    /// The name of its ``ActionKind``, and the fields.
    let action: String
    let fields: Fields
    /// The form token of the session that started it; empty for a program.
    let owner: String
    /// The path of the page to show at the end.
    let back: String
    private let startedAt = ContinuousClock.now
    private let state = Mutex(State())
    private let stopping = Atomic(false)

    /// The time after which an unconfirmed run is forgotten, because its count is out of date.
    private static let patience = Duration.seconds(3600)
    /// The time until pages no longer show a run that has ended.
    private static let afterglow = Duration.seconds(60)

    init(
        _ change: any Change, _ desk: Desk, of action: String, _ fields: Fields, owner: String, back: String
    ) {
        (self.change, self.desk, self.action, self.fields) = (change, desk, action, fields)
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
        return Undo(of: action, fields, result)
    }

    private func set(_ phase: Phase) {
        state.withLock { state in
            // An operator has stopped it in the meantime.
            guard !state.phase.hasEnded else { return }
            state.phase = phase
            if case .ready(let plan) = phase { state.plan = plan }
            if phase.hasEnded, state.endedAt == nil { state.endedAt = .now }
        }
    }

    private var isStopped: Bool { stopping.load(ordering: .relaxed) }

    /// Stops a count at once, and changes after the current step.
    func stop() {
        stopping.store(true, ordering: .relaxed)
        state.withLock { state in
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
    ///   - end: called at the end of such a change.
    /// - Throws: ``WebError`` if too many runs count or are kept.
    func start(_ run: ChangeRun, isConfirmed: Bool, _ end: @escaping @Sendable () async -> Void) throws {
        let counting = runs.count { if case .counting = $0.phase { true } else { false } }
        guard counting < Self.counting else {
            throw WebError(.tooManyRequests, "\(counting) counts are in progress; stop one, or wait for it")
        }
        if runs.count >= Self.maximum {
            guard let old = runs.firstIndex(where: \.isForgettable) ?? runs.firstIndex(where: { !$0.isWorking }) else {
                throw WebError(.tooManyRequests, "too many runs are in progress")
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
            throw WebError(.tooManyRequests, "\(working) bulk runs are in progress; stop one, or wait for it")
        }
        return run.confirm(end)
    }

    subscript(id: String) -> ChangeRun? { runs.first { $0.id == id } }

    /// Returns the runs that a visitor's pages show, the newest first.
    func inView(of visitor: Visitor) -> [ChangeRun] { runs.reversed().filter { $0.isInView(of: visitor) } }
}

extension Site {
    /// Returns the notices above the title of each page: the result of an action, and the runs in view.
    /// - Parameters:
    ///   - note: the ID of the result of an action, from the page's address.
    ///   - withRuns: false for a page about a run.
    func notices(for visitor: Visitor, note id: String?, withRuns: Bool = true) async -> HTML {
        let note = id.flatMap { notes.take($0, by: visitor) }?.html(self, visitor)
        return """
            <div id="toasts" class="toasts" role="status" data-runs="\(links.path(["runs"]))">\(note)</div>
            \(withRuns ? await runStrip(for: visitor) : "")
            """
    }

    /// Returns the runs that a visitor's pages show, as a live section. Pages without live updates request it from `/runs`.
    func runStrip(for visitor: Visitor) async -> HTML {
        let items = await runs.inView(of: visitor).map { ChangeRunPage.item($0, self, visitor) }
        return Elements.live(
            "runs", items.isEmpty ? "" : "<ul class=\"runs\" aria-label=\"Bulk actions\">\(items)</ul>")
    }
}

/// The page of a run: its confirmation and its progress. With scripts, a dialog shows the same content; see actions.js.
struct ChangeRunPage: DashboardPage {
    let path = "/runs/{id}"
    let section = Section.activity

    static let unknown = WebError(.notFound, "unknown run; its changes remain and are listed under Activity")

    func isLive(_ query: Form) -> Bool { true }

    func content(_ request: PageRequest) async throws -> PageContent {
        guard let run = await request.site.runs[request.parameters("id") ?? ""] else { throw Self.unknown }
        let main: HTML = """
            \(Elements.live("run", Self.content(run, request.site, request.visitor)))
            <p><a href="\(Self.back(run, request.site, request.visitor))">Back</a></p>
            """
        return PageContent(title: "Confirm a change", main: main)
    }

    /// Returns the path of the page to show at the end. The operator's page can have whole tokens or a searched text in its path, so
    /// viewers get the list of actions.
    static func back(_ run: ChangeRun, _ site: Site, _ visitor: Visitor) -> String {
        visitor.seesContent ? run.back : site.links.path(["activity"])
    }

    /// Returns the state of a run: its number and the question, its progress, or its result.
    static func content(_ run: ChangeRun, _ site: Site, _ visitor: Visitor) -> HTML {
        let phase = run.phase
        let (state, title) = words(phase, run)
        // After a change, the page that started it is out of date.
        let back: HTML? = phase.hasEnded && run.isConfirmed ? " data-back=\"\(back(run, site, visitor))\"" : nil
        return """
            <div class="run" data-state="\(state)" data-title="\(visitor.shown(title))"\(back)>\
            \(body(run, phase, site, visitor))</div>
            """
    }

    private static func words(_ phase: ChangeRun.Phase, _ run: ChangeRun) -> (state: String, title: String) {
        switch phase {
        case .counting: ("counting", "Counting")
        case .ready(let plan): ("ready", plan.isEmpty ? "Nothing matches" : plan.command)
        case .running(_, let plan): ("running", plan.command)
        case .done: ("done", "Done")
        case .stopped: ("stopped", "Stopped")
        case .failed: ("failed", "Failed")
        }
    }

    private static func body(_ run: ChangeRun, _ phase: ChangeRun.Phase, _ site: Site, _ visitor: Visitor) -> HTML {
        switch phase {
        case .counting, .running:
            return """
                \(progress(phase))<div class="actions">\(stop(run, site, visitor))\
                <a class="button without-scripts" href="\(site.links.path(["runs", run.id]))">Look again</a></div>
                """
        case .ready(let plan):
            let groups = plan.groups.largestFirst.prefix(20)
                .map { "<li>\(Words.number($0.value)) \(visitor.shown($0.key))</li>" as HTML }
            let notes = Self.notes(plan.notes, visitor)
            guard !plan.isEmpty else {
                return "<p class=\"notice\">Nothing matches, so nothing would change.</p>\(notes)"
            }
            return """
                <p>Chosen: <strong>\(AuditEntry.maskingTokens(plan.subject))</strong></p>
                <div class="problem question"><strong>\(visitor.shown(plan.question ?? ""))</strong>\
                \(if: !groups.isEmpty, "<ul>\(groups)</ul>")</div>\(notes)
                <div class="actions">\
                \(site.form(
                    visitor, "confirm-run", [("id", run.id)], "<button class=\"danger\">\(plan.command)</button>"))\
                \(stop(run, site, visitor, "Back"))</div>
                """
        case .done(let result):
            let undo = run.isOwned(by: visitor) ? run.undo?.form(site, visitor) : nil
            return """
                <p class="notice good" role="status">\(visitor.shown(result.sentence).asSentence)</p>\
                \(notes(result.notes, visitor))\(if: undo != nil, "<div class=\"actions\">\(undo)</div>")
                """
        case .stopped(let result):
            let done = result.sentence.isEmpty ? "nothing was changed" : visitor.shown(result.sentence)
            return """
                <p class="notice" role="status">Stopped: \(done). Start it again to continue.</p>\
                \(notes(result.notes, visitor))
                """
        case .failed(let problem):
            return "<p class=\"problem bad\" role=\"alert\">\(Elements.prose(visitor.shown(problem).asSentence))</p>"
        }
    }

    /// Returns the number of things so far, with a bar.
    private static func progress(_ phase: ChangeRun.Phase) -> HTML {
        switch phase {
        case .counting(let found):
            "<p>Counting: \(Words.number(found)) so far.</p><progress aria-label=\"Counting\"></progress>"
        case .running(let done, let plan) where plan.isCounted && plan.count > 0:
            """
            <p>\(Words.number(done)) of \(Words.number(plan.count)) \(plan.verb).</p>
            <progress value="\(done)" max="\(plan.count)" aria-label="\(plan.verb)"></progress>
            """
        case .running: "<p>In progress.</p><progress aria-label=\"In progress\"></progress>"
        case .ready, .done, .stopped, .failed: ""
        }
    }

    /// Returns a run as an item of the list that all pages show.
    static func item(_ run: ChangeRun, _ site: Site, _ visitor: Visitor) -> HTML {
        let phase = run.phase
        let (state, _) = words(phase, run)
        let note: Note? =
            switch phase {
            case .counting, .running, .ready: nil
            case .done(let result): Note(result.sentence, undo: run.undo)
            case .stopped(let result):
                Note(result.sentence.isEmpty ? "nothing was changed" : result.sentence, .stopped)
            case .failed(let problem): Note(problem, .failed)
            }
        // A script shows the toast once it sees that the run has ended.
        let toast =
            run.isOwned(by: visitor) ? note.map { "<template>\($0.html(site, visitor))</template>" as HTML } : nil
        let words = note.map { "<p>\($0.title): \(visitor.shown($0.message)).</p>" as HTML } ?? progress(phase)
        return """
            <li data-run="\(run.id)" data-state="\(state)"><a href="\(site.links.path(["runs", run.id]))">\
            \(visitor.shown(run.plan?.command ?? "Counting"))</a>\(words)\(toast)</li>
            """
    }

    private static func notes(_ notes: [String], _ visitor: Visitor) -> HTML {
        HTML(notes.map { "<p class=\"notice\">\(Elements.prose(visitor.shown($0).asSentence))</p>" as HTML })
    }

    private static func stop(_ run: ChangeRun, _ site: Site, _ visitor: Visitor, _ title: String = "Stop") -> HTML {
        site.form(visitor, "stop-run", [("id", run.id)], "<button>\(title)</button>")
    }
}
