import Operations
import PrintableText
import PushQueue
import WebPages

/// The list of campaigns, most recently sent first.
struct CampaignsPage: DashboardPage {
    let path = "/campaigns"
    let section = Section.campaigns

    func isLive(_ query: Fields) -> Bool { true }

    func content(_ request: PageRequest) async throws -> PageContent {
        let found = try await request.site.data.campaigns()
        let list = Self.list(
            "Campaigns", found.value.withoutEmptyParts, request,
            empty: Elements.empty(
                "There are no campaigns.",
                """
                <p>A campaign is all jobs with the same member <code>campaign</code>. This command sends one to a list \
                of tokens:</p>
                \(request.command(["campaign", "send", "spring-sale", "--job", "job.json", "--tokens", "tokens.txt"]))
                <p><code>docs/campaigns.md</code> has the details.</p>
                """))
        return PageContent(
            title: "Campaigns", main: Elements.live("campaigns", "\(request.notices(found.unread))\(list)"))
    }

    /// Returns the list of some campaigns, or of one campaign's queues.
    static func list(
        _ title: String, _ campaigns: [CampaignStatus], _ request: PageRequest, isOfQueues: Bool = false, empty: HTML
    ) -> HTML {
        request.list(
            title, campaigns, hasQueue: !isOfQueues, heads: isOfQueues ? ["Campaign": .init("Queue", .name)] : [:],
            empty: empty
        ) { campaign, column, value in
            switch column.title {
            case "Campaign" where isOfQueues: request.link(["queues", campaign.queue], campaign.queue)
            case "Campaign": request.link(["campaigns", campaign.campaign], campaign.campaign.shown)
            case "Started at": value.map { "began \($0)" }
            case "State": state(campaign)
            case "Limit per second": value.map { "at most \($0)/s" }
            case "Progress": progress(campaign.ended, of: campaign.total, "have ended")
            default: value
            }
        }
    }

    static func state(_ campaign: CampaignStatus) -> HTML {
        let tone: Elements.Tone =
            switch campaign.state {
            case .running: .good
            case .slowed, .paused, .stopped: .warning
            case .finished: .quiet
            case .cancelled: .bad
            }
        let label = Elements.label(campaign.state.words, tone)
        return campaign.slowedBy.map { Elements.term(label, $0.asSentence) } ?? label
    }

    static func progress(_ count: Int, of total: Int?, _ words: String) -> HTML {
        guard let total, total > 0 else { return "<span class=\"num\">\(Words.number(count)) \(words)</span>" }
        let part = min(count, total)
        let share = Int(100 * Double(part) / Double(total))
        return """
            <progress value="\(part)" max="\(total)" aria-label="\(share)% \(words)"></progress>\
            <span class="num">\(share)% of \(Words.number(total))</span>
            """
    }
}

/// One campaign: its progress, its outcomes, its guard, and its actions.
struct CampaignPage: DashboardPage {
    let path = "/campaigns/{campaign}"
    let section = Section.campaigns

    func isLive(_ query: Fields) -> Bool { true }

    func content(_ request: PageRequest) async throws -> PageContent {
        let name = request.parameters("campaign") ?? ""
        let state = try await request.site.data.campaign(name)
        let recent = try await request.site.data.campaigns().value
        // Only the list of the latest campaigns has the rates of the last seconds. It may lack this campaign, or be older than the last
        // command.
        let found = state.parts.map { read in
            guard read.state == .running,
                let other = recent.first(where: {
                    Name($0.campaign) == Name(read.campaign) && $0.queue == read.queue && $0.state == .running
                })
            else { return read }
            var part = read
            (part.deliveredPerSecond, part.leftMs) = (other.deliveredPerSecond, other.leftMs)
            return part
        }
        let unknown = Elements.empty(
            "No notification of this campaign has ended yet, in any queue.",
            "<p>You can already pause, limit or cancel it. That applies from its first job on.</p>")
        let view = CampaignView(found.withoutEmptyParts, state, request)
        let main: HTML = """
            \(Elements.live(
                "campaign",
                "\(request.notices(state.unread))\(found.isEmpty && state.sendings.isEmpty ? unknown : view.html)"))
            <p class="actions">\(request.button("Its jobs", ["jobs"], [("campaign", name)]))\
            \(request.button("Its dead letters", ["dead"], [("campaign", name)]))</p>
            """
        return PageContent(
            title: "Campaign \(name.shown)", main: main,
            menu: request.isOperator ? Self.actions(name, found, request) : "")
    }

    private static func actions(_ name: String, _ found: [CampaignStatus], _ request: PageRequest) -> HTML {
        func form(
            _ action: String, _ title: HTML, _ words: HTML, _ fields: HTML,
            _ more: [(name: String, value: String)] = []
        ) -> HTML {
            Elements.action(title, words, request.form(action, [("campaign", name)] + more, class: "fields", fields))
        }
        guard !found.contains(where: { $0.state == .cancelled }) else {
            return form(
                "requeue-campaign", "Send it after all", "Its cancelled jobs are enqueued again.",
                """
                \(Elements.field("Jobs per second", "rate", type: "number", placeholder: "unlimited"))\
                <button class="main">Send it after all</button>
                """)
        }
        let reason = Elements.field("Reason", "reason", placeholder: "wrong template")
        let limit = found.compactMap(\.limitPerSecond).min()
        let rules = found.compactMap(\.stopIf).first
        let minimum = found.compactMap(\.stopMin).first
        let pause =
            found.contains { $0.state.isPaused }
            ? form("resume-campaign", "Resume", "Its jobs are sent again.", "<button class=\"main\">Resume</button>")
            : form(
                "pause-campaign", "Pause", "Its jobs are deferred, and no attempt is spent.",
                "\(reason)<button>Pause</button>")
        return """
            \(pause)\
            \(form("limit-campaign", "Limit", "In all queues together. Empty for no limit.",
                """
                \(Elements.field("Notifications per second", "per_second", value: limit.map { "\($0)" } ?? "",
                    type: "number", placeholder: "no limit"))<button>Limit</button>
                """))\
            \(form("guard-campaign", "Guard", "Pauses the campaign when too much of it fails, counted from now on.",
                """
                \(Elements.field("Pause if", "stop_if", value: rules ?? "", placeholder: "invalid_token>5%,dead>1%"))\
                \(Elements.field("From notifications", "min", value: minimum.map { "\($0)" } ?? "", type: "number",
                    placeholder: "1000"))<button>Guard</button>
                """))\
            \(if: rules != nil, form("guard-campaign", "Remove the guard", "Failures no longer pause the campaign.",
                "<button>Remove the guard</button>", [("off", "1")]))\
            \(form("cancel-campaign", "Cancel", "Jobs that are not sent yet are kept as cancelled.",
                """
                \(reason)<label class="check"><input type="checkbox" name="discard" value="1">discard the jobs, \
                which can't be undone</label>\
                <button class="danger">Cancel the campaign</button>
                """))
            """
    }
}

extension [CampaignStatus] {
    /// The campaigns without empty parts. A part is empty if its queue knows the campaign only from a command, and another queue has its
    /// jobs.
    var withoutEmptyParts: [CampaignStatus] {
        func isEmpty(_ part: CampaignStatus) -> Bool { part.ended == 0 && part.total == nil }
        let sent = Set(filter { !isEmpty($0) }.map { Name($0.campaign) })
        return filter { !isEmpty($0) || !sent.contains(Name($0.campaign)) }
    }
}

struct CampaignView {
    private let parts: [CampaignStatus]
    private let sendings: [CampaignStatus.Sending]
    private let request: PageRequest
    private let summary: CampaignSummary

    /// - Parameter parts: the campaign in each queue that knows it, with the rates of the last seconds.
    init(_ parts: [CampaignStatus], _ state: DashboardData.Campaign, _ request: PageRequest) {
        (self.parts, sendings, self.request) = (parts, state.sendings, request)
        summary = CampaignSummary(parts, isPartial: !state.unread.isEmpty)
    }

    var html: HTML {
        """
        \(states)\(figures)
        <div class="columns">\(funnel)\(outcomes)\(pace)\(guards)\(reasons)\(lists)</div>\
        \(if: parts.count > 1, queues)
        """
    }

    /// The campaign's state in each queue, with the operator, the time and the reason.
    private var states: HTML {
        let lines = parts.map { part -> HTML in
            let by = part.by.map { " by \($0)" as HTML }
            let since = part.stateSinceAt.map { " \(request.time($0))" as HTML }
            let reason = (part.slowedBy ?? part.reason).map { ": \($0)" as HTML }
            let limit = part.limitPerSecond.map { ", at most \(Words.number($0))/s," as HTML }
            let queue: HTML = " in queue \(request.link(["queues", part.queue], part.queue))"
            return
                """
                <p>\(CampaignsPage.state(part))<span class="muted">\(limit)\(queue)\
                \(if: part.state != .running, "\(by)\(since)\(reason)")</span></p>
                """
        }
        return HTML(lines)
    }

    private var figures: HTML {
        let rates = parts.compactMap(\.deliveredPerSecond)
        // The last queue to end determines the end.
        let unfinished = parts.filter(\.isUnfinished)
        let now = Moment.now
        let ends = unfinished.compactMap { $0.endsAt(now: now) }
        let end = !unfinished.isEmpty && ends.count == unfinished.count ? ends.max() : nil
        let started = request.time(summary.startedAt)
        let took =
            summary.durationMs.map { "took \(Words.duration($0))\(if: !summary.finished, " so far")" as HTML }
            ?? "no outcome yet"
        return """
            <h2 class="hidden">Now</h2><div class="figures">
            \(Elements.figure("Delivered per second", "\(rates.isEmpty ? "–" : Words.rate(rates.reduce(0, +)))",
                rates.isEmpty ? "nothing has ended lately" : "in the last seconds"))
            \(Elements.figure("Left", "\(summary.left.map(Words.number) ?? "–")",
                summary.left == nil ? "the total is unknown" : "notifications"))
            \(Elements.figure(
                summary.finished ? "Finished" : "Projected end",
                summary.finished ? request.time(summary.finishedAt) : "\(end.map { Words.duration($0.since(now)) } ?? "–")",
                summary.finished
                    ? "" : end.map { "at this rate: \(Words.clock($0)) UTC" } ?? "needs a total and a rate"))
            \(Elements.figure("Started", started, took))
            </div>
            """
    }

    /// The numbers of all notifications, of those that have ended, and of those that were delivered.
    private var funnel: HTML {
        let all = summary.total ?? max(summary.ended, sendings.reduce(0) { $0 + $1.notifications })
        guard all > 0 else { return "" }
        let delivered = summary.count(.delivered)
        let steps: [(title: String, count: Int)] = [
            ("Total", all), ("Ended", summary.ended), ("Delivered", delivered),
        ]
        let rows = steps.map { title, count -> HTML in
            """
            <li><span>\(title)</span><progress value="\(min(count, all))" max="\(all)" \
            aria-label="\(title)"></progress><span class="num">\(Words.number(count))</span>\
            <span class="num muted">\(CampaignSummary.percent(count, of: all))</span></li>
            """
        }
        let note: HTML =
            summary.total == nil ? "<p class=\"muted\">The total is unknown: no producer has recorded it.</p>" : ""
        return Elements.card("From total to delivered", "<ol class=\"funnel\">\(rows)</ol>\(note)")
    }

    private var outcomes: HTML {
        let shares = SVG.shares(Outcome.allCases.map { ($0.rawValue, $0.rawValue, summary.count($0)) })
        return Elements.card("Outcomes", shares.isEmpty ? "<p class=\"muted\">No outcomes yet.</p>" : shares)
    }

    /// The rate over time, and the times to delivery.
    private var pace: HTML {
        guard let chart = summary.chart else { return "" }
        let names = ["Ended per second", "Peak", "Delivered after"]
        let facts = summary.facts.filter { names.contains($0.name) }.map {
            ("\($0.name)" as HTML, "\($0.value)" as HTML?)
        }
        return Elements.card("Rate over time", "\(chart.html)\(Elements.facts(facts))")
    }

    private var guards: HTML {
        let cards = parts.compactMap { part -> HTML? in
            guard let levels = part.guardLevels, !levels.isEmpty else { return nil }
            let rows = levels.map { level -> HTML in
                let words =
                    "\(level.counter): \(SVG.number(level.percent))% of at most \(SVG.number(level.limitPercent))%"
                return """
                    <li><span>\(level.counter)</span><meter min="0" max="1" high="0.8" low="0.5" optimum="0" \
                    value="\(SVG.number(level.part))" aria-label="\(words)"></meter>\
                    <span class="num">\(SVG.number(level.percent))%</span>\
                    <span class="num muted">of \(SVG.number(level.limitPercent))%</span></li>
                    """
            }
            let minimum = part.stopMin ?? 0
            let of = levels.map(\.of).max() ?? 0
            let counted: HTML =
                of < minimum
                ? "The guard acts from \(Words.number(minimum)) notifications on; \(Words.number(of)) have counted."
                : "\(Words.number(of)) notifications have counted."
            let stopped = part.stoppedAt.map { "<p>It last paused the campaign \(request.time($0)).</p>" as HTML }
            return
                """
                \(if: parts.count > 1, "<h3>\(part.queue)</h3>")<ol class="funnel">\(rows)</ol>\
                <p class="muted">\(counted)</p>\(stopped)
                """
        }
        guard !cards.isEmpty else { return "" }
        return Elements.card("Guard", tone: parts.contains { $0.state == .stopped } ? .warning : .plain, HTML(cards))
    }

    private var reasons: HTML {
        func list(_ title: String, _ counts: [String: Int], _ link: (String) -> HTML) -> HTML {
            guard !counts.isEmpty else { return "" }
            let sorted = counts.largestFirst
            let rows = sorted.prefix(8).map { [link($0.key), "\(Words.number($0.value))"] as [HTML] }
            let rest = sorted.count - rows.count
            return """
                \(Elements.list(title, [.init("\(title)"), .init("Notifications", .number)], rows, empty: ""))\
                \(if: rest > 0, "<p class=\"muted\">\(rest) more reasons</p>")
                """
        }
        let name = summary.campaign
        let dead = list("Dead letters by reason", summary.deadReasons) { reason in
            request.link(["dead"], [("campaign", name), ("reason", reason)], reason)
        }
        let retries = list("Retries by reason", summary.retryReasons) { "\($0)" }
        return dead.isEmpty && retries.isEmpty ? "" : Elements.card("Reasons", "\(dead)\(retries)")
    }

    /// The progress of `campaign send` through each list of tokens.
    private var lists: HTML {
        guard !sendings.isEmpty else { return "" }
        let incomplete: HTML = """
            <p class="muted">If the command has stopped, repeat it with the same job and the same tokens: it \
            continues.</p>
            """
        let parts = sendings.map { sending -> HTML in
            """
            \(CampaignsPage.progress(sending.enqueued, of: sending.jobs, "of its jobs are enqueued"))\
            \(Elements.facts([
                ("Queue", request.link(["queues", sending.queue], sending.queue)),
                ("By", sending.by.isEmpty ? nil : "\(sending.by)"),
                ("Notifications", "\(Words.number(sending.notifications))"),
                ("Started", request.time(sending.startedAt)), ("Last enqueued", request.time(sending.updatedAt)),
            ]))\
            \(if: !sending.isComplete, incomplete)
            """
        }
        return Elements.card("Sending of its list", HTML(parts))
    }

    private var queues: HTML {
        Elements.card("Queues", CampaignsPage.list("Queues", parts, request, isOfQueues: true, empty: ""))
    }
}

extension CampaignSummary {
    /// The points of a chart of the rate over time; none for a campaign of a single period.
    var course: [CampaignPace.Point] { rates.count > 1 && rates.contains { $0.endedPerSecond > 0 } ? rates : [] }

    /// The chart of the notifications that ended, by period; `nil` for a campaign of a single period.
    var chart: Chart? {
        guard let first = course.first else { return nil }
        let times = ChartTimes(first: first.at, step: first.seconds * 1000, count: course.count)
        return Chart(
            "Notifications that ended, per \(times.each)", .columns, times, .count,
            [.init("ended", course.map { Double($0.ended) })], lastIsUnfinished: !finished)
    }
}
