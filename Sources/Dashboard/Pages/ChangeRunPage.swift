import Operations
import PrintableText
import WebPages

/// The page of a run: its confirmation and its progress. With scripts, a dialog shows the same content; see actions.js.
struct ChangeRunPage: DashboardPage {
    let path = "/runs/{id}"
    let section = Section.activity

    static let unknown = WebError(.notFound, "unknown run; its changes remain and are listed under Activity")

    func isLive(_ query: Fields) -> Bool { true }

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

    /// Returns the content for a run's state: the question and the counted number, the progress, or the result.
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
            let undo = run.isOwned(by: visitor) ? run.undo.map { site.form(visitor, $0) } : nil
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
            run.isOwned(by: visitor)
            ? note.map { "<template>\(Notices(site: site, visitor: visitor).toast($0))</template>" as HTML } : nil
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

/// The results of actions, and the runs in view, for one visitor.
struct Notices {
    let site: Site
    let visitor: Visitor

    /// Returns the notices above the title of each page.
    /// - Parameters:
    ///   - note: the ID of the result of an action, from the page's address.
    ///   - withRuns: false for a page about a run.
    func html(note id: String?, withRuns: Bool = true) async -> HTML {
        let note = id.flatMap { site.notes.take($0, by: visitor) }.map(toast)
        return """
            <div id="toasts" class="toasts" role="status" data-runs="\(site.links.path(["runs"]))">\(note)</div>
            \(withRuns ? await runs : "")
            """
    }

    /// The runs that the visitor's pages show, as a live section. Pages without live updates request it from `/runs`.
    var runs: HTML {
        get async {
            let items = await site.runs.inView(of: visitor).map { ChangeRunPage.item($0, site, visitor) }
            return Elements.live(
                "runs", items.isEmpty ? "" : "<ul class=\"runs\" aria-label=\"Bulk actions\">\(items)</ul>")
        }
    }

    /// Returns a note as a toast, which stays until it is dismissed.
    func toast(_ note: Note) -> HTML {
        let tone: HTML =
            switch note.ending {
            case .done: "good"
            case .stopped, .refused: "warning"
            case .failed: "bad"
            }
        return """
            <div class="toast \(tone)"><p><strong>\(note.title).</strong> \(Elements.prose(note.message.asSentence))</p>\
            <div class="actions">\(note.undo.map { site.form(visitor, $0) })\
            <button type="button" class="small quiet" data-dismiss>Dismiss</button></div></div>
            """
    }
}
