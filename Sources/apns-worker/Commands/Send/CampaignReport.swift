import ArgumentParser
import Dashboard
import Operations

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
