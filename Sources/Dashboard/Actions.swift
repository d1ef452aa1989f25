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
                // A script shows the error itself. Without Redis, the page could only show the same error.
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
            Response.page(await site.runStrip(for: context.visitor))
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
    private static func page(of name: String, _ form: Form, _ request: Request, _ site: Site) -> String? {
        guard request.headers[.secFetchMode] == "navigate", let kind = ActionKind.all.first(where: { $0.name == name })
        else { return nil }
        return site.links.path(kind.page(form).segments, kind.page(form).query)
    }

    /// Carries out an action. An action that must be confirmed becomes a run, which waits for the confirmation.
    /// - Parameter origin: the page that sent the action; `nil` if unknown.
    /// - Throws: ``WebError`` for a viewer, an unknown action, or invalid fields.
    static func perform(
        _ name: String, _ form: Form, _ visitor: Visitor, _ site: Site, from origin: String? = nil
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
        if kind.queues == .all { await site.data.forgetQueues() }
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
                ?? Note(result.words, undo: Undo(of: name, fields, result))
            return Result(
                message: result.words, path: path, note: kind.isInAPI || result.error != nil ? note : nil,
                error: result.error)
        }
        let run = ChangeRun(change, desk, of: name, fields, owner: visitor.formToken, back: path)
        try await site.runs.start(run, isConfirmed: try fields.isSet("yes")) { await site.data.changed() }
        return Result(message: "counting", path: site.links.path(["runs", run.id]), run: run)
    }

    /// The field that proves that a form belongs to its session.
    static let formToken = Field("form_token")

    private static func steer(_ name: String, _ form: Form, _ site: Site) async throws -> Result {
        try form.check([Field("id", isRequired: true), formToken])
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

/// A kind of action: its fields, its change, and the page to show afterwards.
struct ActionKind: Sendable {
    /// The queues that an action changes.
    enum Queues: Sendable {
        /// The queue in the field `queue`.
        case one
        /// The queues in the field `queue`; all queues without it.
        case some
        case all
    }

    let name: String
    let summary: String
    let queues: Queues
    /// True if the operator sees the number of things, and confirms it, before anything changes.
    let confirms: Bool
    /// False for an action that only pages use, because the API has another path for it. Its page reports the result itself.
    var isInAPI = true
    /// True if the changed thing may no longer exist, and with it the page that started the action. Other actions return to that page.
    var leavesPage: Bool { ["change-jobs", "change-dead-letters", "edit-and-requeue", "enqueue"].contains(name) }
    let fields: [Field]
    /// The fields that every such action has: the queues, the confirmation, and the form token.
    var own: [Field] {
        let queue: [Field] =
            switch queues {
            case .one: [Field("queue", isRequired: true)]
            case .some: [Field("queue", .texts)]
            case .all: []
            }
        return queue + [Field("force", .flag)] + (confirms ? [Field("yes", .flag)] : []) + [Actions.formToken]
    }
    /// The names of the filters that a list page sends as `filter_NAME`.
    var filters: [String] = []
    let make: @Sendable (Fields, DashboardSource, _ now: Int64) throws -> any Change
    let page: @Sendable (Fields) -> (segments: [String], query: [(name: String, value: String?)])

    init(
        _ name: String, _ summary: String, queues: Queues = .all, confirms: Bool = false, _ fields: [Field] = [],
        filters: [String] = [], page: @escaping @Sendable (Fields) -> [String],
        query: @escaping @Sendable (Fields) -> [(name: String, value: String?)] = { _ in [] },
        make: @escaping @Sendable (Fields, DashboardSource, _ now: Int64) throws -> any Change
    ) {
        (self.name, self.summary, self.queues, self.confirms) = (name, summary, queues, confirms)
        self.fields = fields
        (self.filters, self.make) = (filters, make)
        self.page = { (page($0), query($0)) }
    }

    /// Returns the fields of the change that a form requests. A list page sends its filters as `filter_NAME`, and the selected keys or
    /// tokens. With the scope `selected`, the change is about the selected things. With `all`, it is about all things that match the
    /// filters.
    func chosen(_ form: Form) throws -> Fields {
        guard !filters.isEmpty, let scope = form["scope"] else { return form }
        let key = filters.contains("key") ? "key" : "token"
        let isSelection = scope == "selected"
        if isSelection, form.all(key).isEmpty { throw WebError(.badRequest, "nothing is selected") }
        var fields = Fields()
        for (name, value) in form.without(["scope"]) {
            let filter = name.hasPrefix("filter_") ? String(name.dropFirst(7)) : nil
            // Selected keys need only the filter by queue.
            let isMeant = filter.map { !isSelection || $0 == "queue" } ?? (isSelection || name != key)
            if isMeant { fields.append(filter ?? name, value) }
        }
        if scope == "all", filters.allSatisfy({ fields[$0] == nil }) { fields.append("all", "1") }
        return fields
    }

    // MARK: All

    private static let queueField = { @Sendable (fields: Fields) in ["queues", fields["queue"] ?? ""] }
    private static let campaignField = { @Sendable (fields: Fields) in ["campaigns", fields["campaign"] ?? ""] }

    private static func campaign(
        _ name: String, _ summary: String, confirms: Bool = false, _ change: JobCommands.Change
    ) -> ActionKind {
        ActionKind(
            name, summary, confirms: confirms, CampaignChange.fields(of: change), page: campaignField
        ) { fields, _, now in
            var fields = fields
            // The page leaves the field empty for no limit.
            if case .limit = change, fields.isBlank("per_second") { fields.append("off", "1") }
            return try CampaignChange(change, fields, now: now)
        }
    }

    private static func worker(
        _ name: String, _ summary: String, confirms: Bool = false, _ kind: WorkerCommand.Kind
    ) -> ActionKind {
        ActionKind(name, summary, confirms: confirms, WorkersChange.fields, page: { _ in ["workers"] }) {
            fields, _, _ in try WorkersChange(kind, fields)
        }
    }

    /// The enqueueing of a job by a page. Programs `POST /api/v1/jobs`.
    private static let enqueue: ActionKind = {
        var kind = ActionKind(
            "enqueue", "Enqueue one job.", queues: .one, EnqueueJob.fields, page: { _ in ["try"] },
            query: { fields in
                [("sent", JobKey.of(.init(string: fields.raw("job")))), ("queue", fields["queue"])]
            }
        ) { fields, _, _ in try EnqueueJob(fields) }
        kind.isInAPI = false
        return kind
    }()

    /// The field that names the change of jobs or dead letters.
    private static let verb = Field("action", isRequired: true)

    /// Reads the field ``verb``.
    /// - Returns: the change, and the other fields.
    private static func verb<Verb: CaseIterable & RawRepresentable<String>>(
        _ fields: Fields, _: Verb.Type
    ) throws -> (verb: Verb, others: Fields) {
        let (own, others) = fields.divided(by: [verb.name])
        try own.check([verb])
        guard let verb = Verb(rawValue: try own.required(verb.name)) else {
            let known = Verb.allCases.map(\.rawValue)
            throw WebError(
                .badRequest, "action must be \(known.joined(by: "or"))")
        }
        return (verb, others)
    }

    static let all: [ActionKind] = [
        ActionKind("pause-queue", "Pause a queue.", queues: .one, PauseChange.ofQueues, page: queueField) {
            fields, _, _ in try PauseChange(fields, isOfApp: false)
        },
        ActionKind("resume-queue", "Resume a queue.", queues: .one, page: queueField) { fields, _, _ in
            try ResumeChange(fields, isOfApp: false)
        },
        ActionKind("pause-app", "Pause an app.", PauseChange.ofApp, page: { _ in ["apps"] }) { fields, _, _ in
            try PauseChange(fields, isOfApp: true)
        },
        ActionKind(
            "resume-app", "Resume an app, and see whether APNs still refuses it.", ResumeChange.ofApp,
            page: { _ in ["apps"] }
        ) { fields, _, _ in try ResumeChange(fields, isOfApp: true) },
        worker("quiet-worker", "Ask workers to claim no more jobs.", .quiet),
        worker("work-worker", "Let quiet workers claim jobs again.", .work),
        worker("stop-worker", "Ask workers to drain and exit.", confirms: true, .stop),
        campaign("pause-campaign", "Pause a campaign.", .pause),
        campaign("resume-campaign", "Resume a campaign.", .resume),
        campaign("limit-campaign", "Limit a campaign's rate, or end its limit.", .limit(perSecond: nil)),
        ActionKind(
            "guard-campaign", "Pause a campaign automatically when too much of it fails, or remove its guard.",
            CampaignGuardChange.fields, page: campaignField
        ) { fields, source, _ in try CampaignGuardChange(fields, reasons: source.reasons) },
        campaign("cancel-campaign", "Cancel a campaign.", confirms: true, .cancel(discard: false)),
        campaign("requeue-campaign", "Send a cancelled campaign after all.", confirms: true, .uncancel),
        ActionKind(
            "change-jobs", "Cancel, delete, run or move jobs.", queues: .some, confirms: true,
            [verb] + JobsChange.fields, filters: JobFilter.fieldNames, page: { _ in ["jobs"] }
        ) { fields, _, now in
            let (kind, fields) = try verb(fields, JobsChange.Kind.self)
            return try JobsChange(kind, fields, now: now)
        },
        ActionKind(
            "uncancel-jobs", "End the cancellation of jobs with some IDs.", queues: .some, UncancelJobs.fields,
            page: { _ in ["jobs"] }, query: { [("id", $0["id"])] }
        ) { fields, _, _ in try UncancelJobs(fields) },
        ActionKind(
            "change-dead-letters", "Requeue or delete dead letters.", queues: .some, confirms: true,
            [verb] + DeadLettersChange.fields, filters: DeadLetterFilter.fieldNames, page: { _ in ["dead"] }
        ) { fields, _, now in
            let (kind, fields) = try verb(fields, DeadLettersChange.Kind.self)
            return try DeadLettersChange(kind, fields, now: now)
        },
        ActionKind(
            "edit-and-requeue", "Enqueue an edited job in place of its dead letter.", queues: .one,
            EditAndRequeue.fields, page: { _ in ["dead"] }, query: { [("queue", $0["queue"])] }
        ) { fields, _, _ in try EditAndRequeue(fields) },
        ActionKind(
            "add-invalid-tokens", "Add invalid tokens.", AddInvalidTokens.fields, page: { _ in ["invalid"] }
        ) { fields, source, now in
            try AddInvalidTokens(fields, now: now, environment: source.environment, token: source.token)
        },
        ActionKind(
            "remove-invalid-tokens", "Remove invalid tokens.", confirms: true, RemoveInvalidTokens.fields,
            filters: InvalidTokenFilter.fieldNames + ["token"], page: { _ in ["invalid"] }
        ) { fields, _, now in try RemoveInvalidTokens(fields, now: now) },
        ActionKind(
            "forget-devices", "Remove everything that Redis has about some devices.", confirms: true,
            ForgetDevices.fields, page: { _ in ["devices"] }
        ) { fields, source, _ in try ForgetDevices(fields, token: source.token) },
        enqueue,
    ]
}

extension Site {
    /// Returns the desk for a visitor's changes, with all queues chosen.
    func desk(_ visitor: Visitor) async throws -> Desk {
        var desk = Desk(
            source.fleet, invalidTokens: source.invalidTokens, person: visitor.by, via: .web,
            queues: try await data.queues()
        ) { [logger] error in
            logger.warning(
                "could not record an operator's action",
                metadata: ["event": "audit_failed", "by": "\(visitor.by)", "error": "\(error)"])
        }
        desk.configuredApps = source.appNames
        desk.servingWorker = source.worker
        desk.check = { [data] job, queue in try await data.check(job, queue).failure?.sentence }
        return desk
    }

    /// Returns the path of the page of this site that sent a request; `nil` if there is no such page.
    func origin(of request: Request) -> String? {
        // A proxy may have changed `Host`, so this relies on the browser: it reports if the page is of this site.
        let isOwn = Admission.Head(request, base: links.base).fetchSite == "same-origin"
        let host = isOwn ? nil : request.head.authority ?? ""
        return Self.origin(request.headers[.referer], host: host, base: links.base).map(local)
    }

    /// Returns the path and query of a `Referer`, without the base path; `nil` if it is not a page of this site.
    /// - Parameter host: the host that it must have; `nil` for any.
    static func origin(_ referer: String?, host: String?, base: String) -> String? {
        guard let referer, let scheme = referer.firstRange(of: "://") else { return nil }
        let rest = referer[scheme.upperBound...].prefix { $0 != "#" }
        let authority = rest.prefix { $0 != "/" }
        let path = rest.dropFirst(authority.count)
        let isOwn = host.map { authority.lowercased() == $0.lowercased() } ?? true
        guard isOwn, path.hasPrefix(base + "/") else { return nil }
        let local = Notes.separated(String(path.dropFirst(base.count))).path
        // These paths are not pages, or show the progress of an action.
        let isPage = !["/actions/", "/api/", "/assets/", "/runs", "/login", "/try/check"].contains {
            local.hasPrefix($0)
        }
        return isPage ? local : nil
    }
}

extension Request {
    /// True for a request by a script of a page, which reads JSON.
    var acceptsJSON: Bool { headers[.accept]?.hasPrefix("application/json") ?? false }
}

extension HTTPField.Name {
    fileprivate static var secFetchMode: HTTPField.Name { HTTPField.Name("Sec-Fetch-Mode")! }
}
