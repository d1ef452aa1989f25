import FoundationEssentials
import HTTPTypes
import Hummingbird
import NIOCore
import Operations
import PushJob
import PushQueue
import WebPages

/// A JSON API over the pages' content and the actions, with the same members as the commands' `--json`.
///
/// `/api/v1/openapi.json` describes it.
struct DashboardAPI: Sendable {
    let site: Site

    func add(to routes: RouterGroup<WebContext>) {
        let api = routes.group("/api/v1")
        api.get("/openapi.json") { [site] _, _ in Response.json(bytes: Self.description(base: site.links.base).utf8) }
        get(api, "/status") { request in
            try Response.json(try await request.site.data.fleetStatus())
        }
        get(api, "/history", [Field("span"), Self.queue]) { request in try await history(request) }
        get(api, "/jobs", JobFilter.fields + [Self.queue, Self.after]) { request in
            let part = try await JobsPage().list(request, JobFilter(request.query, now: Moment.now))
            return try list(
                "jobs", try part.rows.map { try $0.json(nil) }, looked: part.looked, part.cursor, unread: part.unread)
        }
        get(api, "/jobs/{queue}/{key}") { request in try await job(request) }
        get(api, "/campaigns") { request in
            let campaigns = try await request.site.data.campaigns()
            return try list(
                "campaigns", try campaigns.value.map { try JSONLine.text($0, keys: .convertToSnakeCase) },
                unread: campaigns.unread)
        }
        get(api, "/campaigns/{campaign}") { request in
            let name = request.parameters("campaign") ?? ""
            let found = try await request.site.data.campaign(name)
            guard !found.parts.isEmpty else {
                if let missing = found.unread.notes.first { throw WebError(.serviceUnavailable, missing) }
                throw WebError(.notFound, "no queue knows a campaign \(name)")
            }
            return try list(
                "campaigns", try found.parts.map { try JSONLine.text($0, keys: .convertToSnakeCase) },
                unread: found.unread)
        }
        get(api, "/dead-letters", DeadLetterFilter.fields + [Self.queue, Self.after]) { request in
            let part = try await DeadLettersPage().list(
                request, DeadLetterFilter(request.query, now: Moment.now), after: request.query["after"])
            return try list(
                "dead_letters", try part.rows.map { try $0.json(isWhole: false) }, part.cursor, unread: part.unread)
        }
        get(api, "/dead-letters/{queue}/{key}") { request in
            Response.json(bytes: try await DeadLetterPage.find(request).json(isWhole: request.visitor.seesContent).utf8)
        }
        get(
            api, "/results",
            ResultFilter.fields + [
                Self.queue, Field("since"), Field("until"), Field("newest_first", .flag), Self.after,
            ]
        ) { request in try await results(request) }
        get(api, "/devices/{token}", [Field("search")]) { request in
            let token = TokenText.normalized(request.parameters("token") ?? "")
            var (found, unread) = try await DevicePage.bounded(request) {
                try await DevicePage.findings(token, request)
            }
            if !unread.isEmpty { found.isPartial = true }
            return Response.json(bytes: try found.json.utf8)
        }
        get(api, "/invalid-tokens", InvalidTokenFilter.fields + [Self.after]) { request in
            let found = try await InvalidTokensPage.list(request)
            let lines = found.rows.map { listed in
                var line = ByteBuffer()
                var shown = listed
                shown.token = ByteBuffer(string: request.token(String(buffer: listed.token)))
                InvalidTokenLine(shown).writeJSON(to: &line)
                return String(buffer: line).trimmed
            }
            return try list("invalid_tokens", lines, found.cursor, unread: found.unread)
        }
        get(api, "/keys") { request in
            let sizes = try await request.site.data.keySizes()
            return try list(
                "keys", try sizes.value.map { try JSONLine.text($0, keys: .convertToSnakeCase) }, unread: sizes.unread)
        }
        get(api, "/activity", ["by", "action", "subject", "result", "after"].map { Field($0) }) { request in
            try await activity(request)
        }
        get(api, "/runs/{id}") { request in
            guard let run = await request.site.runs[request.parameters("id") ?? ""] else {
                throw WebError(.notFound, "unknown run")
            }
            return try Response.json(RunObject(run, for: request.visitor))
        }
        api.post("/check") { [site] request, context in
            let form = try Self.form(context)
            try form.check([Field("queue", isRequired: true), Field("job", isRequired: true)])
            let queue = try await site.data.queue(form["queue"] ?? "")
            let check = await site.source.check(ByteBuffer(string: form.raw("job")), queue)
            return try Response.json(CheckObject(verdicts: check.verdicts, isSendable: check.failure == nil))
        }
        api.post("/actions/{name}") { [site] request, context in
            let name = context.parameters.get("name") ?? ""
            guard ActionKind.all.first(where: { $0.name == name })?.isInAPI ?? true else {
                throw WebError(.notFound, "there is no action \(name); programs POST jobs to /api/v1/jobs")
            }
            let result = try await Actions.perform(name, Self.form(context), context.visitor, site)
            if let error = result.error { throw WebError(.conflict, error) }
            return try Response.json(
                ActionObject(message: result.message, run: result.run.map { RunObject($0, for: context.visitor) }))
        }
    }

    /// Returns the API description in OpenAPI 3.0.
    static func description(base: String) -> String {
        String(decoding: PackageResources.openapi_json, as: UTF8.self)
            .replacing("\"BASE\"", with: "\"\(base.isEmpty ? "/" : base)\"", maxReplacements: 1)
            .replacing(
                "\"ACTIONS\": {}", with: ActionKind.all.filter(\.isInAPI).map(\.description).joined(separator: ",\n  "),
                maxReplacements: 1)
    }

    private struct CheckObject: Encodable {
        let verdicts: [DashboardSource.Verdict]
        let isSendable: Bool
    }

    private struct ActionObject: Encodable {
        let message: String
        let run: RunObject?
    }

    /// A change that waits for its confirmation, is carried out, or has ended.
    private struct RunObject: Encodable {
        let id, state, action: String
        var subject, question, message, error: String?
        var total, done: Int?
        var groups: [String: Int]?
        var notes: [String]?

        init(_ run: ChangeRun, for visitor: Visitor) {
            (id, action) = (run.id, run.change.action.rawValue)
            switch run.phase {
            case .counting(let found): (state, total) = ("counting", found)
            case .ready(let plan):
                (state, total, groups) = ("ready", plan.count, plan.groups)
                (subject, question) = (AuditEntry.maskingTokens(plan.subject), plan.question.map(visitor.shown))
                notes = plan.notes.map(visitor.shown)
            case .running(let done, let plan): (state, self.done, total) = ("running", done, plan.count)
            case .done(let result):
                (state, done, message, notes) = (
                    "done", result.count, visitor.shown(result.sentence), result.notes.map(visitor.shown)
                )
            case .stopped(let result):
                (state, done, message, notes) = (
                    "stopped", result.count, visitor.shown(result.sentence), result.notes.map(visitor.shown)
                )
            case .failed(let problem): (state, error) = ("failed", visitor.shown(problem))
            }
        }
    }

    /// - Parameter fields: the parameters of the query. Others are refused: a misspelled filter would choose everything.
    private func get(
        _ api: RouterGroup<WebContext>, _ path: RouterPath, _ fields: [Field] = [],
        _ answer: @escaping @Sendable (PageRequest) async throws -> Response
    ) {
        api.get(path) { [site] request, context in
            let request = PageRequest(site, request, context)
            try request.query.refusingEmpty.check(fields)
            return try await answer(request)
        }
    }

    private static let queue = Field("queue", .texts)
    private static let after = Field("after")

    /// Reads the fields of an action: a JSON object of strings, numbers, booleans, or lists of strings; or a form.
    private static func form(_ context: WebContext) throws -> Form {
        guard context.form.isEmpty else { return context.form.refusingEmpty }
        guard context.body.readableBytes > 0 else { return Form() }
        do {
            let members = try JSONDecoder().decode(
                [String: FieldValue].self, from: Data(context.body.readableBytesView))
            return Form(
                members.flatMap { name, value in value.texts.map { (name, $0) } }, refusesEmpty: true,
                booleans: Set(members.filter(\.value.isBoolean).keys))
        } catch {
            throw WebError(
                .badRequest,
                "the body must be a JSON object whose members are strings, numbers, booleans or lists of strings")
        }
    }

    private struct FieldValue: Decodable {
        let texts: [String]
        var isBoolean = false

        init(from decoder: any Decoder) throws {
            let container = try decoder.singleValueContainer()
            if let text = try? container.decode(String.self) {
                texts = [text]
            } else if let list = try? container.decode([String].self) {
                // A list without values is a field with an empty value, and not a missing field.
                texts = list.isEmpty ? [""] : list
            } else if let flag = try? container.decode(Bool.self) {
                (texts, isBoolean) = (["\(flag)"], true)
            } else {
                texts = ["\(try container.decode(Int.self))"]
            }
        }
    }

    private func list(
        _ name: String, _ objects: [String], looked: Int? = nil, _ cursor: String? = nil,
        unread: UnreadParts = UnreadParts()
    ) throws -> Response {
        var text = "{\"\(name)\":[\(objects.joined(separator: ","))]"
        if let looked { text += ",\"searched\":\(looked)" }
        // The cursor contains names of queues and lanes, so it must be escaped.
        if let cursor { text += ",\"after\":\(try JSONLine.text(cursor))" }
        if !unread.isEmpty { text += ",\"unread\":\(try JSONLine.text(unread.notes))" }
        return .json(bytes: (text + "}").utf8)
    }

    private func job(_ request: PageRequest) async throws -> Response {
        let (row, queue) = try await JobPage.find(request)
        guard request.visitor.seesContent else { return .json(bytes: try row.json(nil).utf8) }
        let check = await request.source.check(row.job.original, queue)
        return .json(bytes: try row.json(check.verdicts.map { .init(level: $0.level, sentence: $0.sentence) }).utf8)
    }

    /// The maximum number of results in an answer.
    private static let results = 500

    private func results(_ request: PageRequest) async throws -> Response {
        let filter = try ResultFilter(request.query)
        var order = ResultListing.Order()
        order.newestFirst = try request.query.isSet("newest_first")
        (order.since, order.until) = try request.query.range(now: Moment.now)
        let end = request.searchEnd
        let part = try await ListPart<ResultLine>.of(
            request.site.data.queues(named: request.query.all("queue")), after: request.query["after"],
            limit: Self.results, until: end
        ) { [order] keys, cursor, missing in
            let place = cursor.flatMap { StoredResult.Place(id: $0) }
            if let cursor, place == nil { throw WebError.unknownCursor(cursor) }
            let found = try await ResultListing.read(
                filter, order, after: place, limit: missing, until: end,
                request.source.fleet.client(for: keys.results), keys)
            return ListPart(
                rows: found.results.map { ResultLine(queue: keys.queue, result: $0) }, looked: found.looked,
                cursor: found.cursor)
        }
        return try list(
            "results", part.rows.map { $0.json(token: request.token) }, looked: part.looked, part.cursor,
            unread: part.unread)
    }

    private func activity(_ request: PageRequest) async throws -> Response {
        struct Entry: Encodable {
            let id, by, action, subject: String
            let at: Int64
            let count: Int?
            let detail, via, ending: String?
        }
        let part = try await ActivityPage.list(request, limit: 100)
        let lines = try part.rows.map { entry in
            try JSONLine.text(
                Entry(
                    id: entry.id, by: entry.by, action: entry.actionName, subject: entry.subject, at: entry.at,
                    count: entry.count, detail: entry.detail, via: entry.via?.rawValue, ending: entry.ending?.rawValue))
        }
        return try list("activity", lines, part.cursor)
    }

    private func history(_ request: PageRequest) async throws -> Response {
        struct Point: Encodable {
            let at: Int64
            let recorded: Bool
            let outcomes, retries, deferrals: [String: Int]
            let latencyP50Ms, latencyP99Ms, answerP50Ms, answerP99Ms: Double?
            let backlog: Int?
            let oldestAgeMs: Int64?
        }
        let text = request.query["span"] ?? QueueHistory.Span.hour.rawValue
        guard let span = QueueHistory.Span(rawValue: text) else {
            let known = QueueHistory.Span.allCases.map(\.rawValue).joined(separator: ", ")
            throw WebError(.badRequest, "span is \(text); it must be one of \(known)")
        }
        let queues = try await request.site.data.queues(named: request.query.all("queue"))
        let history = try await request.site.data.history(span, of: queues)
        let points = try (history.value?.points ?? []).map { point in
            try JSONLine.text(
                Point(
                    at: point.at, recorded: point.isRecorded,
                    outcomes: Dictionary(
                        uniqueKeysWithValues: point.outcomes.counted.map { ($0.outcome.rawValue, $0.count) }),
                    retries: point.retries, deferrals: point.deferrals, latencyP50Ms: point.latency?.p50,
                    latencyP99Ms: point.latency?.p99, answerP50Ms: point.answer?.p50, answerP99Ms: point.answer?.p99,
                    backlog: point.backlog, oldestAgeMs: point.oldest), keys: .convertToSnakeCase)
        }
        return try list("points", points, unread: history.unread)
    }
}

extension ActionKind {
    /// The path of the action, as a member of the description's `paths`.
    var description: String {
        let all = own.filter { $0.name != Actions.formToken.name } + fields
        let properties = all.map { "\"\($0.name)\": \($0.kind.schema)" }.joined(separator: ", ")
        let required = all.filter(\.isRequired).map { "\"\($0.name)\"" }.joined(separator: ", ")
        let errors = [400, 401, 403, 404, 409, 413, 429, 503]
            .map { "\"\($0)\": {\"$ref\": \"#/components/responses/Error\"}" }
        return """
            "/api/v1/actions/\(name)": {"post": {"summary": "\(summary)", "requestBody": {"required": true, "content": \
            {"application/json": {"schema": {"type": "object", "properties": {\(properties)}\
            \(required.isEmpty ? "" : ", \"required\": [\(required)]")}}}}, "responses": {"200": \
            {"$ref": "#/components/responses/Action"}, \(errors.joined(separator: ", "))}}}
            """
    }
}

extension Field.Kind {
    fileprivate var schema: String {
        switch self {
        case .text: #"{"type": "string"}"#
        case .texts: #"{"type": "array", "items": {"type": "string"}}"#
        case .flag: #"{"type": "boolean"}"#
        case .number: #"{"type": "integer"}"#
        }
    }
}
