import Operations
import PushQueue
import WebPages

/// The list of campaigns, most recently sent first.
struct CampaignsPage: DashboardPage {
    let path = "/campaigns"
    let section = Section.campaigns

    func isLive(_ query: Form) -> Bool { true }

    func content(_ request: PageRequest) async throws -> PageContent {
        let campaigns = try await CampaignStatus.latest(
            100, in: request.site.data.queues(), request.source.fleet)
        let now = Moment.now
        let rows = campaigns.map { campaign -> [HTML] in
            let cells = campaign.cells(now: now)
            return [
                request.link(["campaigns", campaign.campaign], campaign.campaign), "\(cells[1])", Self.state(campaign),
            ]
                + [Self.progress(campaign)] + cells[4...].map { "\($0)" }
        }
        let table = Elements.table(
            "Campaigns",
            [
                "Campaign", "Queue", "State", "Progress", "Delivered", "Invalid", "Dead", "Cancelled", "Other",
                "Per second", "Left", "Started",
            ], rows, numbers: Set(4...9),
            empty: "There are no campaigns. A campaign is all jobs with the same member \"campaign\".")
        return PageContent(title: "Campaigns", main: Elements.live("campaigns", table))
    }

    static func state(_ campaign: CampaignStatus) -> HTML {
        let tone: Elements.Tone =
            campaign.state == "running" ? .good : campaign.state == "paused" ? .warning : .bad
        let limit = campaign.limitPerSecond.map { " \(Words.number($0))/s" }
        return "\(Elements.label(campaign.state, tone))\(limit)"
    }

    static func progress(_ campaign: CampaignStatus) -> HTML {
        guard let total = campaign.total, total > 0, let part = campaign.share else {
            return "\(Words.number(campaign.ended)) ended"
        }
        let share = Int(100 * part)
        return """
            <progress value="\(min(campaign.ended, total))" max="\(total)" aria-label="\(share)% have ended"></progress>\
            \(share)% of \(Words.number(total))
            """
    }
}

/// One campaign: its progress, pause, limit and cancellation.
struct CampaignPage: DashboardPage {
    let path = "/campaigns/{campaign}"
    let section = Section.campaigns

    func isLive(_ query: Form) -> Bool { true }

    func content(_ request: PageRequest) async throws -> PageContent {
        let name = request.parameters("campaign") ?? ""
        let found = try await CampaignStatus.read(name, in: request.site.data.queues(), request.source.fleet)
        let parts = found.map { part($0, request) }
        let unknown: HTML = """
            <p class="notice">No notification of this campaign has ended yet, in any queue. You can already pause or cancel it.</p>
            """
        let field = [("campaign", name)]
        let isPaused = found.contains { $0.state == "paused" }
        let isCancelled = found.contains { $0.state == "cancelled" }
        let actions: HTML = """
            <h2>Actions</h2><div class="columns">
            \(if: !isCancelled && !isPaused, request.form("pause-campaign", field, class: "filters",
                "\(Elements.field("Reason", "reason"))<button>Pause</button>"))
            \(if: isPaused, request.form("resume-campaign", field, class: "filters", "<button class=\"main\">Resume</button>"))
            \(if: !isCancelled, request.form("limit-campaign", field, class: "filters",
                "\(Elements.field("Notifications per second", "per_second", type: "number", placeholder: "no limit"))<button>Limit</button>"))
            \(if: !isCancelled, request.form("guard-campaign", field, class: "filters",
                """
                \(Elements.field("Pause if", "stop_if", placeholder: "invalid_token>5%,dead>1%"))\
                \(Elements.field("From notifications", "min", type: "number", placeholder: "1000"))<button>Guard</button>
                """))
            \(if: found.contains { $0.stopIf != nil }, request.form("guard-campaign", field + [("off", "1")], class: "filters",
                "<button>Remove the guard</button>"))
            \(if: !isCancelled, request.form("cancel-campaign", field, class: "filters",
                """
                \(Elements.field("Reason", "reason"))\
                <label class="check"><input type="checkbox" name="discard" value="1">discard jobs without dead letters (cannot be undone)</label>\
                <button class="danger">Cancel the campaign</button>
                """))
            \(if: isCancelled, request.form("requeue-campaign", field, class: "filters",
                "\(Elements.field("Jobs per second", "rate", type: "number", placeholder: "unlimited"))<button class=\"main\">Send it after all</button>"))
            </div>
            """
        let main: HTML = """
            \(Elements.live("campaign", parts.isEmpty ? unknown : HTML(parts)))
            <p>\(request.link(["jobs"], [("campaign", name)], "Its jobs")) · \
            \(request.link(["dead"], [("campaign", name)], "Its dead letters"))</p>\(if: request.isOperator, actions)
            """
        return PageContent(title: "Campaign \(name)", main: main)
    }

    private func part(_ campaign: CampaignStatus, _ request: PageRequest) -> HTML {
        func reasons(_ counts: [String: Int]) -> HTML? {
            counts.isEmpty
                ? nil
                : "\(counts.largestFirst.prefix(8).map { "\(Words.number($0.value)) \($0.key)" }.joined(separator: ", "))"
        }
        let outcomes = Outcome.allCases.compactMap { outcome -> [HTML]? in
            guard let count = campaign.outcomes[outcome.rawValue], count > 0 else { return nil }
            return ["<span class=\"swatch \(outcome.rawValue)\"></span>\(outcome.rawValue)", "\(Words.number(count))"]
        }
        let rules = campaign.stopIf.map { rules -> HTML in
            "\(rules), from \(Words.number(campaign.stopMin ?? 0)) notifications on"
        }
        let since = campaign.stateSinceAt.map { "\(request.time($0))" as HTML }
        return """
            <h2>Queue \(campaign.queue)</h2>
            \(Elements.facts([
                ("State", CampaignsPage.state(campaign)), ("Since", since), ("By", campaign.by.map { "\($0)" }),
                ("Reason", campaign.reason.map { "\($0)" }),
                ("Guard", rules), ("Progress", CampaignsPage.progress(campaign)),
                ("Left", campaign.left.map { "\(Words.number($0))" }),
                ("Time left", campaign.leftMs.map { "\(Words.duration($0))" }),
                ("Per second", campaign.perSecond.map { "\(Words.rate($0))" }), ("Started", request.time(campaign.startedAt)),
                ("Last outcome", request.time(campaign.updatedAt)), ("Dead letters", reasons(campaign.deadReasons)),
                ("Retries", reasons(campaign.retryReasons)),
            ]))
            \(Elements.table("Outcomes", ["Outcome", "Notifications"], outcomes, numbers: [1], empty: "No outcomes yet."))
            """
    }
}
