import ArgumentParser
import Dashboard
import NIOCore
import Operations
import PushQueue
import Redis

struct Campaign: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "campaign",
        abstract: "Send, show, pause, limit and cancel campaigns.",
        discussion: """
            A campaign is all jobs with the same member "campaign", such as {"campaign":"spring-sale",…}. Its commands work on \
            jobs that wait, retry, are scheduled or are claimed, and on those that are enqueued later, without a scan: they are \
            one field in Redis, which workers read with every claim.

              apns-worker campaign send spring-sale --job job.json --tokens devices.csv --column token
              apns-worker campaign list
              apns-worker campaign show spring-sale --watch
              apns-worker campaign cancel spring-sale --reason 'wrong price'
              apns-worker campaign requeue spring-sale
              apns-worker campaign report spring-sale --html > report.html

            The counters of a campaign are kept for 90 days after its last notification. `campaign send` and \
            `enqueue` count the total. Other producers set it before they push the first job: \
            HSET push:{default}:campaign:spring-sale total 500000
            """,
        subcommands: [
            CampaignSend.self, CampaignList.self, CampaignShow.self, CampaignReport.self, CampaignPause.self,
            CampaignResume.self,
            CampaignLimit.self,
            CampaignGuardCommand.self, CampaignCancel.self, CampaignRequeue.self,
        ])
}

struct CampaignList: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "list", abstract: "List campaigns, the latest first.")

    @OptionGroup(title: "Queues") var fleet: FleetOptions

    @Option(help: "Maximum number of campaigns in each queue.") var limit = 20

    @Flag(help: "Print JSON: one object per line, as `campaign show` does.") var json = false

    func validate() throws {
        guard (1...10_000).contains(limit) else { throw ValidationError("--limit must be 1 to 10000") }
    }

    func run() async throws {
        try await fleet.withFleet { fleet in
            var unread = UnreadParts()
            let campaigns = try await CampaignStatus.latest(limit, in: fleet.notedQueues(), fleet, &unread)
            try show(campaigns)
            unread.report()
            try unread.check()
        }
    }

    private func show(_ campaigns: [CampaignStatus]) throws {
        if json {
            for campaign in campaigns { print(campaign.json()) }
        } else if campaigns.isEmpty {
            Terminal.note("there are no campaigns\n")
        } else {
            Terminal.print(Table.text(of: campaigns, now: Moment.now))
        }
    }
}

struct CampaignShow: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "show", abstract: "Show the progress of a campaign.",
        discussion: "With --json it prints one object for each queue that knows the campaign.")

    @OptionGroup var options: CampaignOptions

    @Flag(help: "Refresh every two seconds until Ctrl-C.") var watch = false

    @Flag(help: "Print JSON.") var json = false

    func run() async throws {
        try await options.withQueues { fleet, queues in
            var unread = UnreadParts()
            let first = try await options.read(fleet, queues, &unread)
            let screen = StatusScreen()
            guard watch else {
                try draw(first, unread, screen, isDrawn: false)
                return try unread.check()
            }
            let isDrawn = !json && screen.isTerminal
            try await screen.watch(isDrawn: isDrawn) { [self, unread] in
                var (last, at, missing) = (first, Moment.now, unread.names)
                try draw(last, unread, screen, isDrawn: isDrawn)
                while !Task.isCancelled {
                    try await Task.sleep(for: .seconds(2))
                    var unread = UnreadParts()
                    var next = try await CampaignStatus.read(options.campaign, in: queues, fleet, &unread)
                    if !isDrawn, unread.names != missing { unread.report() }
                    missing = unread.names
                    let now = Moment.now
                    for index in next.indices {
                        guard let earlier = last.first(where: { $0.queue == next[index].queue }) else { continue }
                        next[index].compare(with: earlier, after: now - at)
                    }
                    try draw(next, unread, screen, isDrawn: isDrawn)
                    (last, at) = (next, now)
                }
            }
        }
    }

    /// - Parameter unread: the queues that could not be read, which a screen shows.
    private func draw(
        _ campaigns: [CampaignStatus], _ unread: UnreadParts, _ screen: StatusScreen, isDrawn: Bool
    ) throws {
        if json {
            for campaign in campaigns { print(campaign.json()) }
            return
        }
        let now = Moment.now
        var lines = Array(campaigns.map { $0.page(now: now) }.joined(separator: [""]))
        if isDrawn { lines += unread.notes.map(\.printable) }
        _ = isDrawn ? screen.draw(lines) : screen.write(lines.joined(separator: "\n") + "\n")
    }
}

struct CampaignReport: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "report", abstract: "Print the report on a campaign.",
        discussion: """
            The sums of all queues: outcomes, reasons, shares, duration and rate. With --html it is one page with charts, \
            without scripts and links to other files, so that it can be mailed.
            """)

    @OptionGroup var options: CampaignOptions

    @Flag(help: "Print JSON.") var json = false

    @Flag(help: "Print an HTML page.") var html = false

    func validate() throws {
        if json, html { throw ValidationError("--json and --html cannot be combined") }
    }

    func run() async throws {
        try await options.withQueues { fleet, queues in
            var unread = UnreadParts()
            let found = try await options.read(fleet, queues, &unread)
            let summary = CampaignSummary(found, isPartial: !unread.isEmpty)
            if json {
                print(summary.json())
            } else if html {
                Terminal.print(CampaignReportDocument(summary, now: Moment.now).text)
            } else {
                Terminal.print(summary.page.joined(separator: "\n") + "\n")
            }
            try unread.check()
        }
    }
}
