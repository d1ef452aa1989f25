import Operations
import PushQueue
import Redis
import WebPages

/// The charts of some queues over a time that the visitor chooses, with the changes in that time.
struct HistoryCharts {
    private let request: PageRequest
    private let queues: [String]
    private let span: QueueHistory.Span

    init(_ request: PageRequest, _ queues: [String]) {
        (self.request, self.queues) = (request, queues)
        span = request.query["span"].flatMap(QueueHistory.Span.init) ?? .hour
    }

    /// - Parameter segments: the page's own path.
    func html(segments: [String]) async throws -> HTML {
        let tabs = Elements.tabs(
            "Time",
            QueueHistory.Span.allCases.map { one in
                let path = request.links.path(segments, request.query.without(["span"]) + [("span", one.rawValue)])
                return ("\(one.words)", path, one == span, nil)
            })
        let all = try await request.site.data.queues()
        let keys = all.filter { queues.contains($0.queue) }
        let found = try await request.site.data.history(span, of: keys)
        guard let history = found.value else {
            let empty = Elements.empty("There are no queues.", "<p>A queue begins with its first job or worker.</p>")
            return "\(tabs)\(Elements.live("charts", empty))"
        }
        let times = ChartTimes(first: history.points[0].at, step: span.step, count: span.count)
        let (changes, note) = try await changes(times)
        // Links for all queues need no filter by queue.
        let links = ChartLinks(request.links, times, queues: keys.count < all.count ? queues : [])
        let charts = charts(history, times, links, changes.map { Chart.Mark(at: $0.at, $0.mark) })
        return """
            <h2 class="hidden">Charts</h2>\(tabs)
            \(Elements.live(
                "charts", "\(request.notices(found.unread))<div class=\"columns\">\(charts.map(\.html))</div>"))
            <h2>Changes</h2>\(Elements.live("changes", "\(list(changes))\(note)"))
            """
    }

    // MARK: Charts

    private func charts(
        _ history: QueueHistory, _ times: ChartTimes, _ links: ChartLinks, _ marks: [Chart.Mark]
    ) -> [Chart] {
        let points = history.points
        func columns(_ title: String, _ series: [Chart.Series]) -> Chart {
            Chart("\(title), per \(times.each)", .columns, times, .count, series, marks: marks, lastIsUnfinished: true)
        }
        func lines(
            _ title: String, _ unit: ChartUnit, _ series: [(name: String, value: (QueueHistory.Point) -> Double?)]
        ) -> Chart {
            Chart(
                title, .lines, times, unit, series.map { .init($0.name, points.map($0.value)) }, marks: marks)
        }
        let outcomes = Outcome.allCases.map { outcome in
            Chart.Series(
                outcome.rawValue, style: outcome.rawValue,
                points.map { $0.isRecorded ? Double($0.counts.outcomes[outcome]) : nil },
                link: { links.path(of: outcome, $0) })
        }
        let charts = [
            columns("Notifications by outcome", outcomes), columns("Retries by reason", retries(points, links)),
        ]
        guard span.hasMinutes else { return charts }
        return charts + [
            lines(
                "Time from enqueueing to the outcome", .milliseconds,
                [("p50", { $0.latency?.p50 }), ("p99", { $0.latency?.p99 })]),
            lines(
                "Time until APNs answers", .milliseconds,
                [("p50", { $0.answer?.p50 }), ("p99", { $0.answer?.p99 })]),
            lines("Backlog of jobs", .count, [("waiting and due", { $0.backlog.map(Double.init) })]),
            lines("Age of the oldest job", .milliseconds, [("oldest", { $0.counts.oldest.map(Double.init) })]),
        ]
    }

    /// The maximum number of reasons with a series of their own.
    private static let maximumReasons = 5

    /// Returns a series for each reason with many retries, and one for all other reasons.
    private func retries(_ points: [QueueHistory.Point], _ links: ChartLinks) -> [Chart.Series] {
        var sums: [String: Int] = [:]
        for point in points { sums.merge(point.counts.retries) { $0 + $1 } }
        let names = sums.largestFirst.map(\.key)
        let shown = names.prefix(Self.maximumReasons)
        func values(_ count: (QueueHistory.Point) -> Int) -> [Double?] {
            points.map { $0.isRecorded ? Double(count($0)) : nil }
        }
        var series = shown.map { name in
            Chart.Series(name, values { $0.counts.retries[name] ?? 0 }, link: { _ in links.path(ofRetries: name) })
        }
        if names.count > shown.count {
            series.append(
                .init(
                    "others", style: "series-6",
                    values { point in point.counts.retries.reduce(0) { $0 + (shown.contains($1.key) ? 0 : $1.value) } })
            )
        }
        return series
    }

    // MARK: Changes

    private static let maximumChanges = 20

    /// Returns the changes in the time, newest first, and a note if some may be missing.
    private func changes(_ times: ChartTimes) async throws -> ([DeliveryChange], HTML) {
        let data = request.site.data
        let workers = try await data.fleetStatus().workers
        var (entries, note): ([AuditEntry], HTML) = ([], "")
        do {
            entries = try await data.latestActions()
            if entries.count == DashboardData.maximumActions, let oldest = entries.last, oldest.at > times.first {
                note = """
                    <p class="muted">Only the latest \(Words.number(entries.count)) actions were searched, back to \
                    \(Moment.text(oldest.at)).</p>
                    """
            }
        } catch let error as RedisError {
            // The charts are shown without the actions.
            note = "<p class=\"notice\">The actions of operators can't be read: \(error.description)</p>"
        }
        return (DeliveryChange.all(entries, workers, in: times, of: queues), note)
    }

    private func list(_ changes: [DeliveryChange]) -> HTML {
        let shown = changes.prefix(Self.maximumChanges)
        let list = Elements.list(
            "Changes", [.init("Time", .key), .init("Change"), .init("By", .key), .init("Detail", priority: 2)],
            shown.map { change in
                [
                    request.time(change.at), "\(change.text)", "\(change.by)",
                    change.detail.map(Elements.clamped) ?? "",
                ]
            },
            empty: Elements.empty(
                "No worker started, and nothing was paused, resumed, cancelled or sent to a list in this time."))
        let more = changes.count - shown.count
        return """
            \(list)<p>\(if: more > 0, "\(Words.number(more)) earlier changes are marked in the charts. ")\
            \(request.link(["activity"], "All actions"))</p>
            """
    }
}

/// Links from a part of a chart to the page that lists its jobs.
struct ChartLinks: Sendable {
    private let links: Links
    private let times: ChartTimes
    private let queues: [(name: String, value: String?)]

    /// - Parameter queues: the queues of the charts; empty for all.
    init(_ links: Links, _ times: ChartTimes, queues: [String]) {
        (self.links, self.times) = (links, times)
        self.queues = queues.map { ("queue", $0) }
    }

    /// Returns the path of the list with the notifications that had an outcome in a step; `nil` if no list has notifications with this
    /// outcome.
    func path(of outcome: Outcome, _ step: Int) -> String? {
        let range: [(name: String, value: String?)] = [
            ("since", Moment.text(times.start(step))), ("until", Moment.text(times.start(step + 1))),
        ]
        return switch outcome {
        case .dead: links.path(["dead"], queues + range)
        case .cancelled: links.path(["dead"], queues + [("reason", DeadLetter.cancelledReason)] + range)
        case .invalidToken: links.path(["invalid"], range)
        case .delivered, .expired, .dropped, .suppressed: nil
        }
    }

    /// Returns the path of the jobs that wait for a retry with a reason; `nil` for reasons that are counted together.
    func path(ofRetries reason: String) -> String? {
        guard reason != MinuteCounts.otherReason else { return nil }
        return links.path(["jobs"], queues + [("state", "retrying"), ("reason", reason)])
    }
}

/// Something that changes how notifications are sent: an action of an operator, or a start of workers.
struct DeliveryChange: Equatable {
    /// The time in milliseconds since 1970.
    var at: Int64
    var text: String
    var by: String?
    var detail: String?

    var mark: String {
        let more = [by, detail].compactMap(\.self).joined(separator: ": ")
        return "\(Words.clock(at).prefix(5)) \(text)" + (more.isEmpty ? "" : " (\(more))")
    }

    /// The workers of one version that start within this number of milliseconds are one deployment.
    private static let deployment: Int64 = 600_000

    /// Returns the changes in a time, newest first.
    /// - Parameter queues: the queues of the charts; pauses of other queues are left out.
    static func all(
        _ entries: [AuditEntry], _ workers: [WorkerStatus], in times: ChartTimes, of queues: [String]
    ) -> [DeliveryChange] {
        let actions = entries.compactMap { DeliveryChange($0, of: queues) }
        return (actions + starts(workers)).filter { times.index(of: $0.at) != nil }.sorted { $0.at > $1.at }
    }

    /// - Returns: `nil` for an action that did not change how notifications are sent.
    private init?(_ entry: AuditEntry, of queues: [String]) {
        guard let action = entry.action, let verb = action.verb, let ending = entry.ending, ending != .refused else {
            return nil
        }
        let queue = "queue "
        if action == .pause || action == .resume, entry.subject.hasPrefix(queue),
            !queues.contains(String(entry.subject.dropFirst(queue.count)))
        {
            return nil
        }
        let count = entry.count.map { $0 == 1 ? "" : " (\(Words.number($0)))" } ?? ""
        self.init(
            at: entry.at, text: "\(verb) \(entry.subject)\(count)\(ending == .failed ? ", which failed" : "")",
            by: entry.by.isEmpty ? nil : entry.by, detail: entry.detail)
    }

    private init(at: Int64, text: String, by: String? = nil, detail: String? = nil) {
        (self.at, self.text, self.by, self.detail) = (at, text, by, detail)
    }

    /// Returns the starts of the workers that have a lease. Workers without a lease are not known.
    private static func starts(_ workers: [WorkerStatus]) -> [DeliveryChange] {
        var groups: [[WorkerStatus]] = []
        let started = workers.filter { $0.startedAt != nil }.sorted { ($0.startedAt ?? 0) < ($1.startedAt ?? 0) }
        for worker in started {
            let group = groups.lastIndex { $0[0].version == worker.version }
            if let group, (worker.startedAt ?? 0).since(groups[group][0].startedAt ?? 0) < deployment {
                groups[group].append(worker)
            } else {
                groups.append([worker])
            }
        }
        return groups.map { group in
            let first = group[0]
            let who = group.count == 1 ? "Worker \(first.name) started" : "\(Words.number(group.count)) workers started"
            return DeliveryChange(
                at: first.startedAt ?? 0, text: first.version.isEmpty ? who : "\(who) with version \(first.version)",
                detail: group.count == 1
                    ? nil
                    : group.prefix(5).map(\.name).joined(separator: ", ")
                        + (group.count > 5 ? ", …" : ""))
        }
    }
}

extension AuditEntry.Action {
    /// The beginning of a sentence with the subject; `nil` for actions that do not change how notifications are sent.
    fileprivate var verb: String? {
        switch self {
        case .pause, .pauseCampaign: "Paused"
        case .resume, .resumeCampaign: "Resumed"
        case .quiet: "Quieted"
        case .work: "Set to work:"
        case .stop: "Stopped"
        case .cancelJobs: "Cancelled jobs:"
        case .uncancelJobs: "Lifted the cancellation of jobs:"
        case .runJobs: "Made jobs due now:"
        case .moveJobs: "Moved jobs:"
        case .requeue: "Requeued dead letters:"
        case .sendCampaign: "Sent"
        case .cancelCampaign: "Cancelled"
        case .limitCampaign: "Limited"
        case .requeueCampaign: "Requeued"
        case .guardCampaign: "Guarded"
        case .reshardInvalidTokens: "Resharded"
        case .deleteDeadLetters, .editAndRequeue, .addInvalidTokens, .removeInvalidTokens, .forgetDevices, .testSend:
            nil
        }
    }
}

extension QueueHistory.Span {
    /// The name in the picker.
    fileprivate var words: String {
        switch self {
        case .quarter: "15 min"
        case .hour: "1 h"
        case .sixHours: "6 h"
        case .day: "24 h"
        case .week: "7 days"
        case .days: "40 days"
        }
    }
}

extension ChartTimes {
    /// The length of a step in words: `minute`, `10 minutes`, `2 hours` or `day`.
    var each: String {
        let minutes = step / 60_000
        let (count, unit) =
            minutes % 1440 == 0
            ? (minutes / 1440, "day") : minutes % 60 == 0 ? (minutes / 60, "hour") : (minutes, "minute")
        return count == 1 ? unit : "\(count) \(unit)s"
    }
}
