import HTTPTypes
import Hummingbird
import Operations
import PrintableText
import PushQueue
import WebPages

/// The actions of operators: the same changes that the commands make. Pages send forms to `/actions/NAME`. Programs send JSON objects with
/// the same members to `/api/v1/actions/NAME`.
struct Actions: Sendable {
    struct Result {
        /// A sentence for the user.
        var message: String
        /// The page to show next.
        var path: String
        var run: ChangeRun?
        /// The report for the next page; `nil` if that page shows the result by itself.
        var note: Note?
        /// The error that ended the action early; `nil` without one.
        var error: String?
    }

    let site: Site

    func add(to routes: RouterGroup<WebContext>) {
        routes.post("/actions/{name}") { [site] request, context in
            let (name, visitor) = (context.parameters.get("name") ?? "", context.visitor)
            let origin = site.origin(of: request)
            let result: Result
            do {
                result = try await Self.perform(name, context.form, visitor, site, from: origin)
                try await result.run?.settle()
            } catch let error where !(error is CancellationError) {
                let found = WebError(error)
                // A script shows the error itself. Without Redis, a page could not show more than the error.
                guard !request.acceptsJSON, found.status != .serviceUnavailable,
                    let page = origin ?? Self.page(of: name, context.form, request, site),
                    let id = site.notes.add(Note(found), for: visitor)
                else { throw found }
                return Response.seeOther(Self.adding(note: id, to: page))
            }
            let id = result.note.flatMap { site.notes.add($0, for: visitor) }
            let path = id.map { Self.adding(note: $0, to: result.path) } ?? result.path
            guard request.acceptsJSON else { return Response.seeOther(path) }
            return try Response.json(
                Answer(page: path, run: result.run.map { site.links.path(["runs", $0.id, "content"]) }))
        }
        routes.get("/runs") { [site] _, context in
            Response.page(await Notices(site: site, visitor: context.visitor).runs)
        }
        routes.get("/runs/{id}/content") { [site] _, context in
            guard let run = await site.runs[context.parameters.get("id") ?? ""] else { throw ChangeRunPage.unknown }
            return Response.page(ChangeRunPage.content(run, site, context.visitor))
        }
    }

    /// The answer to a script of a page.
    private struct Answer: Encodable {
        /// The page to show next.
        let page: String
        /// The path of a run's content, to show in a dialog.
        let run: String?
    }

    private static func adding(note id: String, to path: String) -> String {
        path + (path.contains("?") ? "&" : "?") + "note=\(id)"
    }

    /// Returns the page to show after an error if the browser has not sent its page; `nil` for a request that no browser made.
    private static func page(of name: String, _ form: Fields, _ request: Request, _ site: Site) -> String? {
        guard request.headers[.secFetchMode] == "navigate", let kind = ActionKind.all.first(where: { $0.name == name })
        else { return nil }
        return site.links.path(kind.page(form).segments, kind.page(form).query)
    }

    /// Carries out an action. An action that must be confirmed becomes a run, which waits for the confirmation.
    /// - Parameter origin: the page that sent the action; `nil` if unknown.
    /// - Throws: ``WebError`` for a viewer, an unknown action, or invalid fields.
    static func perform(
        _ name: String, _ form: Fields, _ visitor: Visitor, _ site: Site, from origin: String? = nil
    ) async throws -> Result {
        let isRun = name == "confirm-run" || name == "stop-run"
        let kind = ActionKind.all.first { $0.name == name }
        guard isRun || kind != nil else { throw WebError(.notFound, "there is no action \(name)") }
        guard visitor.role == .operator else {
            throw WebError(
                .forbidden, site.configuration.isReadOnly ? "this dashboard is read-only" : "only operators can do this"
            )
        }
        guard let kind else { return try await steer(name, form, site) }
        let fields = try kind.chosen(form)
        let (own, others) = fields.divided(by: Set(kind.own.map(\.name)))
        try own.check(kind.own)
        // An action on all queues must include queues that have appeared in the last seconds.
        if kind.queues != .one, fields.all("queue").isEmpty { await site.data.forgetQueues() }
        var desk = try await site.desk(visitor)
        desk.isForced = try fields.isSet("force")
        switch kind.queues {
        case .one: desk.queues = try await site.data.queues(named: [fields.required("queue")])
        case .some: desk.queues = try await site.data.queues(named: fields.all("queue"))
        case .all: desk.missingQueues = try await site.data.missingQueues
        }
        // Only filters by time need the time of Redis, so other changes need not wait for it.
        let now = kind.filters.isEmpty ? Moment.now : try await site.source.fleet.now(of: desk.queues)
        let change = try kind.make(others, site.source, now)
        var path = site.links.path(kind.page(fields).segments, kind.page(fields).query)
        if let origin, !kind.leavesPage || form["scope"] != nil { path = origin }
        guard kind.confirms else {
            let result = try await desk.perform(change)
            await site.data.changed()
            let note =
                result.error.map { Note("\(result.sentence): \($0)", .failed) }
                ?? Note(result.words, undo: kind.undo(fields, result))
            return Result(
                message: result.words, path: path, note: kind.isInAPI || result.error != nil ? note : nil,
                error: result.error)
        }
        let run = ChangeRun(change, desk, of: kind, fields, owner: visitor.formToken, back: path)
        try await site.runs.start(run, isConfirmed: try fields.isSet("yes")) { await site.data.changed() }
        return Result(message: "counting", path: site.links.path(["runs", run.id]), run: run)
    }

    private static func steer(_ name: String, _ form: Fields, _ site: Site) async throws -> Result {
        try form.check([Field("id", isRequired: true), ActionKind.formToken])
        guard let run = try await site.runs[form.required("id")] else { throw WebError(.notFound, "unknown run") }
        if name == "stop-run" {
            run.stop()
        } else if !(try await site.runs.confirm(run, { await site.data.changed() })) {
            throw WebError(.conflict, "this run cannot be confirmed: it has already started or ended")
        }
        return Result(
            message: name == "stop-run" ? "stopping" : "confirmed", path: site.links.path(["runs", run.id]), run: run)
    }
}

extension Request {
    /// True for a request by a script of a page, which reads JSON.
    var acceptsJSON: Bool { headers[.accept]?.hasPrefix("application/json") ?? false }
}

extension HTTPField.Name {
    fileprivate static var secFetchMode: HTTPField.Name { HTTPField.Name("Sec-Fetch-Mode")! }
}
