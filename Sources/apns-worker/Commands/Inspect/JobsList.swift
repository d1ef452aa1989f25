import ArgumentParser
import Operations
import PrintableText
import PushQueue

struct Jobs: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "jobs",
        abstract: "List, show, cancel, run, move or export unfinished jobs.",
        discussion: """
            waiting    in the list, or about to be claimed
            retrying   failed, and tried again at its time
            scheduled  until its `send_at`
            deferred   not sendable now, such as jobs of a paused app; no attempt is spent
            claimed    held by a worker

            Dead letters have their own commands: `apns-worker dead` and `requeue`.
            """,
        subcommands: [
            JobsList.self, JobsShow.self, JobsCancel.self, JobsRun.self, JobsMove.self, JobsExport.self,
        ])
}

struct JobsList: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "list", abstract: "List or count jobs.",
        discussion: """
            Waiting jobs come first, in the order in which they are sent, then claimed jobs, then the others in the order of their \
            next attempt. Redis is read a page at a time, so a large backlog does not block it.

              apns-worker jobs list --state retrying
              apns-worker jobs list --campaign spring-sale --count --by state
              apns-worker jobs list --token 00fc13ad… --json
            """)

    @OptionGroup(title: "Queues") var queue: QueueOptions

    @OptionGroup(title: "Filters") var options: JobOptions

    @OptionGroup var list: ListOptions<JobRow>

    func validate() throws { _ = try options.filter() }

    func run() async throws {
        let filter = try options.filter()
        var (looked, queues) = (0, 0)
        var (counts, output) = (list.counts, list.output())
        let decodes = counts.map { JobRow.mustRead(for: $0.groups) } ?? true
        let unread = try await QueueChoice.withEach(queue) { fleet, keys, count in
            let jobs = try await fleet.jobs(of: keys)
            queues += 1
            output.hasQueue = count > 1
            guard !output.hasMore else { return }
            looked += try await jobs.sweep(filter, decodes: decodes, inOrder: counts == nil) { _, page, now in
                let rows = page.map { JobRow(queue: keys.queue, job: $0, now: now) }
                guard counts == nil else {
                    for row in rows { counts?.add(row) }
                    return true
                }
                output.now = now
                return try output.add(rows)
            }
        }
        counts?.print(isJSON: list.json)
        try output.end()
        guard counts?.sum ?? output.written == 0 else { return try unread.check() }
        try QueueJobs.reportNothing(filter, looked: looked, queues: queues)
        try unread.check()
    }
}
