import ArgumentParser
import Dashboard
import Operations

struct CampaignReport: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "report", abstract: "Print the report on a campaign.",
        discussion: """
            The sums of all queues: outcomes, reasons, shares, duration and rate. With --html it is one page with charts, \
            without scripts and links to other files, so that it can be mailed.

            With --json it prints one object: campaign, finished, total, ended, left, outcomes, delivered_share, invalid_share, \
            dead_reasons, retry_reasons, started_at, updated_at, finished_at, duration_ms, ended_per_second, latency_p50_ms and \
            latency_p99_ms (from enqueueing to delivery), rates (the \
            rate over time: at, seconds, ended and ended_per_second of each period), queues, with an object \
            as of `campaign show` for each queue, and partial, if a queue could not be read: then it is not known how many \
            are left. Unknown values are omitted.
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
                Terminal.print(try JSONLine.text(summary, keys: .convertToSnakeCase) + "\n")
            } else if html {
                Terminal.print(CampaignReportDocument(summary, now: Moment.now).text)
            } else {
                Terminal.print(summary.page.joined(separator: "\n") + "\n")
            }
            try unread.check()
        }
    }
}
