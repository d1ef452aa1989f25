import Operations
import PrintableText
import PushQueue

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
    let isInAPI: Bool
    /// True if the action can remove the object of the page that started it. Other actions return to their page.
    let leavesPage: Bool
    let fields: [Field]
    /// The fields of every action of this kind: the queues, the confirmation, and the form token.
    var own: [Field] {
        let queue: [Field] =
            switch queues {
            case .one: [Field("queue", isRequired: true)]
            case .some: [Field("queue", .texts)]
            case .all: []
            }
        return queue + [Field("force", .flag)] + (confirms ? [Field("yes", .flag)] : []) + [Self.formToken]
    }
    /// The field that proves that a form belongs to its session.
    static let formToken = Field("form_token")
    /// The names of the filters that a list page sends as `filter_NAME`.
    let filters: [String]
    private let opposite: @Sendable (Fields, ChangeResult) -> Undo?
    let make: @Sendable (Fields, DashboardSource, _ now: Int64) throws -> any Change
    let page: @Sendable (Fields) -> (segments: [String], query: [(name: String, value: String?)])

    /// - Parameter undo: given the result, returns the action that restores the former state; `nil` if no action does.
    init(
        _ name: String, _ summary: String, queues: Queues = .all, confirms: Bool = false, _ fields: [Field] = [],
        filters: [String] = [], isInAPI: Bool = true, leavesPage: Bool = false,
        page: @escaping @Sendable (Fields) -> [String],
        query: @escaping @Sendable (Fields) -> [(name: String, value: String?)] = { _ in [] },
        undo: @escaping @Sendable (Fields, ChangeResult) -> Undo? = { _, _ in nil },
        make: @escaping @Sendable (Fields, DashboardSource, _ now: Int64) throws -> any Change
    ) {
        (self.name, self.summary, self.queues, self.confirms) = (name, summary, queues, confirms)
        (self.fields, self.filters, self.isInAPI, self.leavesPage) = (fields, filters, isInAPI, leavesPage)
        (opposite, self.make) = (undo, make)
        self.page = { (page($0), query($0)) }
    }

    /// Returns the action that undoes this action, given its result; `nil` if no action does.
    func undo(_ fields: Fields, _ result: ChangeResult) -> Undo? {
        result.hasNoEffect || result.error != nil ? nil : opposite(fields, result)
    }

    /// Returns the fields of the change that a form requests. A list page sends its filters as `filter_NAME`, and the selected keys or
    /// tokens. With the scope `selected`, the change is about the selected things. With `all`, it is about all things that match the
    /// filters.
    func chosen(_ form: Fields) throws -> Fields {
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

    /// Returns the pause that a change has ended or replaced; `nil` if there was none.
    private static func formerPause(_ kind: String, _ fields: Fields, _ result: ChangeResult) -> Undo? {
        let reports = result.parts.compactMap { $0.report as? PauseReport }
        guard let before = reports.first?.before else { return nil }
        return Undo("pause-\(kind)", fields.pairs(kind) + (before.isReasonless ? [] : [("reason", before.reason)]))
    }

    private static func campaign(
        _ name: String, _ summary: String, confirms: Bool = false, _ change: JobCommands.Change,
        undo: @escaping @Sendable (_ campaign: [(String, String)], Fields, [CampaignReport]) -> Undo?
    ) -> ActionKind {
        ActionKind(
            name, summary, confirms: confirms, CampaignChange.fields(of: change), page: campaignField,
            undo: { undo($0.pairs("campaign"), $0, $1.parts.compactMap { $0.report as? CampaignReport }) }
        ) { fields, _, now in
            var fields = fields
            // The page leaves the field empty for no limit.
            if case .limit = change, fields.isBlank("per_second") { fields.append("off", "1") }
            return try CampaignChange(change, fields, now: now)
        }
    }

    private static func worker(
        _ name: String, _ summary: String, confirms: Bool = false, _ kind: WorkerCommand.Kind, undo: String? = nil
    ) -> ActionKind {
        ActionKind(
            name, summary, confirms: confirms, WorkersChange.fields, page: { _ in ["workers"] },
            undo: { _, result in
                undo.flatMap { Undo($0, things: result.parts.compactMap(\.subject).map { ("worker", $0) }) }
            }
        ) { fields, _, _ in try WorkersChange(kind, fields) }
    }

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
        ActionKind(
            "pause-queue", "Pause a queue.", queues: .one, PauseChange.ofQueues, page: queueField,
            undo: { formerPause("queue", $0, $1) ?? Undo("resume-queue", $0.pairs("queue")) }
        ) { fields, _, _ in try PauseChange(fields, isOfApp: false) },
        ActionKind(
            "resume-queue", "Resume a queue.", queues: .one, page: queueField, undo: { formerPause("queue", $0, $1) }
        ) { fields, _, _ in try ResumeChange(fields, isOfApp: false) },
        ActionKind(
            "pause-app", "Pause an app.", PauseChange.ofApp, page: { _ in ["apps"] },
            undo: { formerPause("app", $0, $1) ?? Undo("resume-app", $0.pairs("app")) }
        ) { fields, _, _ in try PauseChange(fields, isOfApp: true) },
        ActionKind(
            "resume-app", "Resume an app, and see whether APNs still refuses it.", ResumeChange.ofApp,
            page: { _ in ["apps"] }, undo: { formerPause("app", $0, $1) }
        ) { fields, _, _ in try ResumeChange(fields, isOfApp: true) },
        worker("quiet-worker", "Ask workers to claim no more jobs.", .quiet, undo: "work-worker"),
        worker("work-worker", "Let quiet workers claim jobs again.", .work, undo: "quiet-worker"),
        worker("stop-worker", "Ask workers to drain and exit.", confirms: true, .stop),
        campaign("pause-campaign", "Pause a campaign.", .pause) { campaign, _, reports in
            reports.allSatisfy { $0.before == "running" } ? Undo("resume-campaign", campaign) : nil
        },
        campaign("resume-campaign", "Resume a campaign.", .resume) { campaign, _, reports in
            reports.allSatisfy { $0.before == "paused" } ? Undo("pause-campaign", campaign) : nil
        },
        campaign("limit-campaign", "Limit a campaign's rate, or end its limit.", .limit(perSecond: nil)) {
            campaign, _, reports in
            let limits = Set(reports.map(\.limitBefore))
            guard limits.count == 1, let before = limits.first, reports.contains(where: { $0.limitPerSecond != before })
            else { return nil }
            return Undo(
                "limit-campaign", campaign + [before.map { ("per_second", "\($0)") } ?? ("off", "1")],
                title: before.map { "Undo: \(Words.number($0)) per second" } ?? "Undo: no limit")
        },
        ActionKind(
            "guard-campaign", "Pause a campaign automatically when too much of it fails, or remove its guard.",
            CampaignGuardChange.fields, page: campaignField
        ) { fields, source, _ in try CampaignGuardChange(fields, reasons: source.reasons) },
        campaign("cancel-campaign", "Cancel a campaign.", confirms: true, .cancel(discard: false)) {
            campaign, fields, _ in
            // Discarded jobs cannot be sent any more, so there is no undo.
            fields["discard"] == nil ? Undo("requeue-campaign", campaign, title: "Send it after all…") : nil
        },
        campaign("requeue-campaign", "Send a cancelled campaign after all.", confirms: true, .uncancel) {
            campaign, _, _ in Undo("cancel-campaign", campaign, title: "Cancel it again…")
        },
        ActionKind(
            "change-jobs", "Cancel, delete, run or move jobs.", queues: .some, confirms: true,
            [verb] + JobsChange.fields, filters: JobFilter.fieldNames, leavesPage: true, page: { _ in ["jobs"] },
            undo: { fields, _ in
                // Cancelling by IDs alone also cancels jobs that are enqueued later. Only the cancellation of later jobs can be undone.
                let isOfIDs = JobFilter.fieldNames.allSatisfy { ["id", "queue"].contains($0) || fields[$0] == nil }
                guard fields["action"] == "cancel", isOfIDs else { return nil }
                return Undo("uncancel-jobs", things: fields.pairs("id"), and: fields.pairs("queue"))
            }
        ) { fields, _, now in
            let (kind, fields) = try verb(fields, JobsChange.Kind.self)
            return try JobsChange(kind, fields, now: now)
        },
        ActionKind(
            "uncancel-jobs", "End the cancellation of jobs with some IDs.", queues: .some, UncancelJobs.fields,
            page: { _ in ["jobs"] }, query: { [("id", $0["id"])] },
            undo: { fields, _ in
                let others = [("action", "cancel")] + fields.pairs("queue")
                return Undo("change-jobs", things: fields.pairs("id"), and: others, title: "Cancel again…")
            }
        ) { fields, _, _ in try UncancelJobs(fields) },
        ActionKind(
            "change-dead-letters", "Requeue or delete dead letters.", queues: .some, confirms: true,
            [verb] + DeadLettersChange.fields, filters: DeadLetterFilter.fieldNames, leavesPage: true,
            page: { _ in ["dead"] }
        ) { fields, _, now in
            let (kind, fields) = try verb(fields, DeadLettersChange.Kind.self)
            return try DeadLettersChange(kind, fields, now: now)
        },
        ActionKind(
            "edit-and-requeue", "Enqueue an edited job in place of its dead letter.", queues: .one,
            EditAndRequeue.fields, leavesPage: true, page: { _ in ["dead"] }, query: { [("queue", $0["queue"])] }
        ) { fields, _, _ in try EditAndRequeue(fields) },
        ActionKind(
            "add-invalid-tokens", "Add invalid tokens.", AddInvalidTokens.fields, page: { _ in ["invalid"] },
            undo: { _, result in
                let added = result.parts.flatMap(\.changed).map { ("token", $0) }
                return Undo("remove-invalid-tokens", things: added, title: "Undo…")
            }
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
        // Programs `POST /api/v1/jobs`.
        ActionKind(
            "enqueue", "Enqueue one job.", queues: .one, EnqueueJob.fields, isInAPI: false, leavesPage: true,
            page: { _ in ["try"] },
            query: { [("sent", JobKey.of(.init(string: $0.raw("job")))), ("queue", $0["queue"])] }
        ) { fields, _, _ in try EnqueueJob(fields) },
    ]
}

extension Fields {
    /// Returns the values of a field, for a form.
    fileprivate func pairs(_ name: String) -> [(String, String)] { all(name).map { (name, $0) } }
}
