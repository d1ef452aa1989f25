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

    /// A path that answers GET.
    fileprivate struct Read: Sendable {
        let path, summary: String
        /// The parameters of the query. Unknown parameters are refused, because a misspelled filter would choose everything.
        let fields: [Field]
        /// The members of the object in the answer, or of each object in its list.
        let thing: ShownMembers
        /// The name of the answer's list; `nil` if the answer is a single object.
        let list: String?
        /// True if the list can be counted by columns (`by`).
        var isCounted = false
        let read: @Sendable (PageRequest) async throws -> Response

        static func thing<Thing: Shown>(
            _ path: String, _ summary: String, _ fields: [Field] = [],
            _ read: @escaping @Sendable (PageRequest) async throws -> (thing: Thing, isDetailed: Bool)
        ) -> Read {
            Read(path: path, summary: summary, fields: fields, thing: Thing.columns.members, list: nil) { request in
                let (thing, isDetailed) = try await read(request)
                return .json(bytes: thing.json(isDetailed: isDetailed).utf8)
            }
        }

        /// - Parameter isSearch: true if the answer contains the number of searched rows (`searched`).
        static func list<Row: Shown>(
            _ path: String, _ name: String, _ summary: String, _ fields: [Field] = [], isSearch: Bool = true,
            _ read: @escaping @Sendable (PageRequest) async throws -> ListPart<Row>
        ) -> Read {
            Read(path: path, summary: summary, fields: fields, thing: Row.columns.members, list: name) { request in
                let part = try await read(request)
                var json = ByteBuffer(string: "{\"\(name)\":[")
                for (index, row) in part.rows.enumerated() {
                    if index > 0 { json.writeStaticString(",") }
                    row.writeJSON(to: &json)
                }
                json.writeString("]\(end(isSearch ? part.looked : nil, part.cursor, part.unread))")
                return .json(bytes: json.readableBytesView)
            }
        }

        /// A list that can be counted by columns (`by`).
        static func counted<Row: Counted>(
            _ path: String, _ name: String, _ summary: String, _ fields: [Field],
            _ read: @escaping @Sendable (PageRequest, ListReading) async throws -> ListPart<Row>
        ) -> Read {
            let by = Field(
                "by", .text,
                "Count by these columns, without a list: \(Row.groupsInWords). "
                    + "The count ends after a few seconds; an answer with `after` is not complete.")
            let list = list(path, name, summary, fields + [by]) { try await read($0, $0.reading) }
            return Read(
                path: path, summary: summary, fields: list.fields, thing: list.thing, list: name, isCounted: true
            ) { request in
                guard let (counts, part) = try await request.counted({ try await read(request, $0) }) else {
                    return try await list.read(request)
                }
                let rows = counts.rows.map(counts.json).joined(separator: ",")
                return .json(bytes: Array("{\"counts\":[\(rows)]\(end(part.looked, part.cursor, part.unread))".utf8))
            }
        }

        /// Returns the members after the list, and the end of the answer.
        private static func end(_ looked: Int?, _ cursor: String?, _ unread: UnreadParts) -> String {
            var json = looked.map { ",\"searched\":\($0)" } ?? ""
            // The cursor contains names of queues and lanes, so it must be escaped.
            if let cursor { json += ",\"after\":\(JSONLine.quoted(cursor))" }
            if !unread.isEmpty { json += ",\"unread\":[\(unread.notes.map(JSONLine.quoted).joined(separator: ","))]" }
            return json + "}"
        }
    }

    private static let reads: [Read] = [
        .thing("/status", "Queues, workers, apps, servers and problems.") {
            (try await $0.site.data.fleetStatus(), false)
        },
        .list("/history", "points", "Counters by time.", [span, queue], isSearch: false) { try await history($0) },
        .counted("/jobs", "jobs", "Unfinished jobs.", [queue] + JobFilter.fields + [after]) { request, reading in
            try await JobsPage().list(request, JobFilter(request.query, now: Moment.now), reading)
        },
        .thing("/jobs/{queue}/{key}", "A full job.") { request in
            var (row, queue) = try await JobPage.find(request)
            guard request.visitor.seesContent else { return (row, false) }
            row.verdicts = try await request.site.data.check(row.job.original, queue).verdicts
            return (row, true)
        },
        .list("/campaigns", "campaigns", "The latest campaigns.", isSearch: false) { request in
            let campaigns = try await request.site.data.campaigns()
            return ListPart(rows: campaigns.value, unread: campaigns.unread)
        },
        .list(
            "/campaigns/{campaign}", "campaigns", "A campaign in each queue that knows it.", isSearch: false
        ) { request in
            let name = request.parameters("campaign") ?? ""
            let found = try await request.site.data.campaign(name)
            guard !found.parts.isEmpty else {
                if let missing = found.unread.notes.first { throw WebError(.serviceUnavailable, missing) }
                throw WebError(.notFound, "no queue knows a campaign \(name)")
            }
            return ListPart(rows: found.parts, unread: found.unread)
        },
        .counted(
            "/dead-letters", "dead_letters", "Dead letters, the newest first.",
            [queue] + DeadLetterFilter.fields + [after]
        ) { request, reading in
            try await DeadLettersPage().list(request, DeadLetterFilter(request.query, now: Moment.now), reading)
        },
        .thing("/dead-letters/{queue}/{key}", "A full dead letter.") {
            (try await DeadLetterPage.find($0), $0.visitor.seesContent)
        },
        .counted(
            "/results", "results", "Results of notifications, one queue after the other, the oldest first.",
            [queue] + ResultFilter.fields + Field.range("Results") + [
                Field("newest_first", .flag, "True for the newest first."),
                Field(
                    "after", .text,
                    "`after` of the previous part, or `QUEUE|ENTRY` of a result to read the results after it."
                ),
            ]
        ) { try await results($0, $1) },
        .thing(
            "/devices/{token}", "Everything known about a device token, in hex or base64.",
            [
                Field(
                    "search", .text,
                    "`all` searches everything. Without `all`, the search may end early, and `partial` is then true.",
                    words: ["all"])
            ]
        ) { request in
            let token = TokenText.normalized(request.parameters("token") ?? "")
            var (found, unread) = try await DevicePage.bounded(request) {
                try await DevicePage.findings(token, request)
            }
            if !unread.isEmpty { found.isPartial = true }
            return (found, false)
        },
        .list(
            "/invalid-tokens", "invalid_tokens", "The set of invalid tokens.", InvalidTokenFilter.fields + [after]
        ) { request in
            let found = try await InvalidTokensPage.list(request)
            let lines = found.rows.map { listed in
                var shown = listed
                shown.token = ByteBuffer(string: request.token(String(buffer: listed.token)))
                return shown
            }
            return ListPart(rows: lines, looked: found.looked, cursor: found.cursor, unread: found.unread)
        },
        .list("/keys", "keys", "Redis keys by size.", isSearch: false) { request in
            let sizes = try await request.site.data.keySizes()
            return ListPart(rows: sizes.value, unread: sizes.unread)
        },
        .list(
            "/activity", "activity", "Actions of operators, the newest first.",
            [
                Field("by", .text, "The operator."), Field("action", .text, "The action, as in the entries."),
                Field("subject", .text, "A part of the subject or the detail, ignoring case."),
                Field("result", .text, "Result of the action.", words: AuditEntry.Ending.allCases.map(\.rawValue)),
                after,
            ]
        ) { try await ActivityPage.list($0, limit: 100) },
        .thing("/runs/{id}", "The progress of a run.") { request in
            guard let run = await request.site.runs[request.parameters("id") ?? ""] else {
                throw WebError(.notFound, "unknown run")
            }
            return (RunObject(run, for: request.visitor), false)
        },
    ]

    private static let queue = Field("queue", .texts, "Only these queues.")
    private static let after = Field("after", .text, "`after` of the previous part.")
    private static let span = Field(
        "span", .text,
        "The period until now. Its points are 1 minute (15m, 1h), 5 minutes (6h), 20 minutes (24h) or a day.",
        words: QueueHistory.Span.allCases.map(\.rawValue))

    func add(to routes: RouterGroup<WebContext>) {
        let api = routes.group("/api/v1")
        api.get("/openapi.json") { [site] _, _ in Response.json(bytes: Self.description(base: site.links.base).utf8) }
        for path in Self.reads {
            api.get(RouterPath(path.path)) { [site] request, context in
                let request = PageRequest(site, request, context)
                try request.query.refusingEmpty.check(path.fields)
                return try await path.read(request)
            }
        }
        api.post("/check") { [site] request, context in
            let form = try Self.form(context)
            try form.check([Field("queue", isRequired: true), Field("job", isRequired: true)])
            let queue = try await site.data.queue(form["queue"] ?? "")
            let check = try await site.data.check(ByteBuffer(string: form.raw("job")), queue)
            return try Response.json(CheckObject(verdicts: check.verdicts, isSendable: check.failure == nil))
        }
        api.post("/actions/{name}") { [site] request, context in
            let name = context.parameters.get("name") ?? ""
            guard ActionKind.all.first(where: { $0.name == name })?.isInAPI ?? true else {
                throw WebError(.notFound, "there is no action \(name); programs POST jobs to /api/v1/jobs")
            }
            let result = try await Actions.perform(name, Self.form(context), context.visitor, site)
            if let error = result.error { throw WebError(.conflict, error) }
            let run = result.run.map { RunObject($0, for: context.visitor) }
            return Response.json(bytes: ActionObject(message: result.message, run: run).json().utf8)
        }
    }

    // MARK: Description

    /// Returns the API description in OpenAPI 3.0. `openapi.json` has the paths that change something. The paths that read, the actions and
    /// the schemas are inserted into it.
    static func description(base: String) -> String {
        let things = reads.map(\.thing) + [ActionObject.columns.members]
        // The file already has this path, because it describes the POST.
        let paths =
            reads.filter { $0.path != "/jobs" }.map { "\"/api/v1\($0.path)\": {\($0.operation)}" }
            + ActionKind.all.filter(\.isInAPI).map { description(of: $0) }
        return String(decoding: PackageResources.openapi_json, as: UTF8.self)
            .replacing("\"BASE\"", with: "\"\(base.isEmpty ? "/" : base)\"", maxReplacements: 1)
            .replacing("\"GET\": {}", with: reads.first { $0.path == "/jobs" }?.operation ?? "", maxReplacements: 1)
            .replacing("\"PATHS\": {}", with: paths.joined(separator: ",\n  "), maxReplacements: 1)
            .replacing(
                "\"SCHEMAS\": {}", with: ShownMembers.schemas(things).joined(separator: ",\n   "), maxReplacements: 1)
    }

    /// Returns the member of `paths` that describes an action.
    private static func description(of kind: ActionKind) -> String {
        let all = kind.own.filter { $0.name != ActionKind.formToken.name } + kind.fields
        let properties = all.map { "\"\($0.name)\": \($0.schema)" }.joined(separator: ", ")
        let required = all.filter(\.isRequired).map { "\"\($0.name)\"" }.joined(separator: ", ")
        let errors = errors([400, 401, 403, 404, 409, 413, 429, 503])
        return """
            "/api/v1/actions/\(kind.name)": {"post": {"summary": "\(kind.summary)", "requestBody": {"required": true, "content": \
            {"application/json": {"schema": {"type": "object", "properties": {\(properties)}\
            \(required.isEmpty ? "" : ", \"required\": [\(required)]")}}}}, "responses": {"200": \
            {"$ref": "#/components/responses/Action"}, \(errors)}}}
            """
    }

    /// Returns the members of `responses` for errors with these statuses.
    fileprivate static func errors(_ statuses: [Int]) -> String {
        statuses.sorted().map { "\"\($0)\": {\"$ref\": \"#/components/responses/Error\"}" }.joined(separator: ", ")
    }

    private struct CheckObject: Encodable {
        let verdicts: [JobRow.Verdict]
        let isSendable: Bool
    }

    private struct ActionObject: Shown {
        let message: String
        let run: RunObject?

        static let columns = Columns<Self>(
            "Action", "The answer to an action.",
            [
                .init("message", "Sentence about the result, or about the run.", \.message),
                .init("run", "The run that waits for its confirmation, or makes the change.", \.run),
            ])
    }

    /// A change that waits for its confirmation, is carried out, or has ended.
    private struct RunObject: Shown {
        let id, state, action: String
        var subject, question, message, error: String?
        var total, done: Int?
        var groups: [String: Int]?
        var notes: [String]?

        static let columns = Columns<Self>(
            "Run", "Work on many jobs, dead letters or tokens. It waits for `confirm-run` once it is ready.",
            [
                .init("id", "ID.", \.id),
                .init(
                    "state", "State:", as: .choice(["counting", "ready", "running", "done", "stopped", "failed"]),
                    \.state),
                .init("action", "Action.", \.action), .init("subject", "Subject of the change, in words.", \.subject),
                .init("total", "Number of things to change.", \.total),
                .init("done", "Number of things that were changed so far.", \.done),
                .init("groups", "Number of things by state or reason.", \.groups),
                .init("error", "Reason why it failed.", \.error), .init("question", "Question to confirm.", \.question),
                .init("message", "Sentence about the result.", \.message), .init("notes", "Remarks.", \.notes),
            ])

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

    /// Reads the fields of an action from a form, or from a JSON object of strings, numbers, booleans and lists of strings.
    private static func form(_ context: WebContext) throws -> Fields {
        guard context.form.isEmpty else { return context.form.refusingEmpty }
        guard context.body.readableBytes > 0 else { return Fields() }
        do {
            let members = try JSONDecoder().decode(
                [String: FieldValue].self, from: Data(context.body.readableBytesView))
            return Fields(
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
                // An empty list is an empty value, which is refused. A missing field could choose everything.
                texts = list.isEmpty ? [""] : list
            } else if let flag = try? container.decode(Bool.self) {
                (texts, isBoolean) = (["\(flag)"], true)
            } else {
                texts = ["\(try container.decode(Int.self))"]
            }
        }
    }

    /// The maximum number of results in an answer.
    private static let results = 500

    private static func results(_ request: PageRequest, _ reading: ListReading) async throws -> ListPart<ResultLine> {
        var order = ResultListing.Order()
        order.newestFirst = try request.query.isSet("newest_first")
        (order.since, order.until) = try request.query.range(now: Moment.now)
        var reading = reading
        reading.limit = max(Self.results, reading.limit)
        return try await request.results(ResultFilter(request.query), order, reading)
    }

    private static func history(_ request: PageRequest) async throws -> ListPart<HistoryPoint> {
        let text = request.query["span"] ?? QueueHistory.Span.hour.rawValue
        guard let span = QueueHistory.Span(rawValue: text) else {
            let known = QueueHistory.Span.allCases.map(\.rawValue).joined(separator: ", ")
            throw WebError(.badRequest, "span is \(text); it must be one of \(known)")
        }
        let queues = try await request.site.data.queues(named: request.query.all("queue"))
        let history = try await request.site.data.history(span, of: queues)
        return ListPart(rows: (history.value?.points ?? []).map(HistoryPoint.init), unread: history.unread)
    }
}

private struct HistoryPoint: Shown {
    let point: QueueHistory.Point

    static let columns = Columns<Self>(
        "Point", "The counters of a period.",
        [
            .init("at", "Beginning.", as: .time, \.point.at),
            .init(
                "recorded", "False if nothing was recorded: no worker ran, or no worker had anything to do.",
                \.point.isRecorded),
            .init("outcomes", "Notifications that ended, by outcome.") { step in
                Dictionary(
                    uniqueKeysWithValues: step.point.counts.outcomes.counted.map { ($0.outcome.rawValue, $0.count) })
            },
            .init("retries", "Notifications that are tried again, by reason.", \.point.counts.retries),
            .init("deferrals", "Notifications that are deferred, by reason.", \.point.counts.deferrals),
            .init("latency_p50_ms", "Median of the times from enqueueing to the outcome.", \.point.latency?.p50),
            .init(
                "latency_p99_ms", "99th percentile of the times from enqueueing to the outcome.", \.point.latency?.p99),
            .init("answer_p50_ms", "Median of the times from a request to its answer.", \.point.answer?.p50),
            .init("answer_p99_ms", "99th percentile of the times from a request to its answer.", \.point.answer?.p99),
            .init("backlog", "Largest number of jobs that could be claimed.", \.point.backlog),
            .init("oldest_age_ms", "Largest age of a job when it was claimed.", as: .duration, \.point.counts.oldest),
        ])
}

extension DashboardAPI.Read {
    /// The member `get` of the path in OpenAPI.
    fileprivate var operation: String {
        let inPath = path.matches(of: /{(\w+)}/).map { part in
            """
            {"name": "\(part.1)", "in": "path", "required": true, "schema": {"type": "string", "minLength": 1}}
            """
        }
        let counts = """
            , "counts": {"type": "array", "description": "With `by`: the counts.", "items": {"type": "object", \
            "required": ["count"], "properties": {"count": {"type": "integer"}}, "additionalProperties": {"type": "string"}}}
            """
        let schema = list.map { list in
            """
            {"type": "object", "properties": {"\(list)": {"type": "array", "items": \(thing.reference)}, \
            "searched": {"type": "integer", "description": "Number of things that were searched."}, \
            "after": {"type": "string", "description": "Place of the next part, if there is one."}, \
            "unread": {"$ref": "#/components/schemas/Unread"}\(isCounted ? counts : "")}, \
            \(isCounted ? "" : "\"required\": [\"\(list)\"], ")"additionalProperties": false}
            """
        }
        return """
            "get": {"summary": \(JSONLine.quoted(summary)), "parameters": \
            [\((inPath + fields.map(\.parameter)).joined(separator: ", "))], "responses": {"200": {"description": \
            "The answer.", "content": {"application/json": {"schema": \(schema ?? thing.reference)}}}, \
            \(DashboardAPI.errors([400, 401, 404, 429, 503]))}}
            """
    }
}

extension Field {
    fileprivate var parameter: String {
        """
        {"name": "\(name)", "in": "query", "description": \(JSONLine.quoted(meaning)), "schema": \(schema)\
        \(kind == .texts ? ", \"explode\": true" : "")}
        """
    }

    fileprivate var schema: String {
        let text =
            words.isEmpty
            ? #"{"type": "string"}"#
            : "{\"type\": \"string\", \"enum\": [\(words.map(JSONLine.quoted).joined(separator: ", "))]}"
        return switch kind {
        case .text: text
        case .texts: "{\"type\": \"array\", \"items\": \(text)}"
        case .flag: #"{"type": "boolean"}"#
        case .number: #"{"type": "integer"}"#
        }
    }
}
