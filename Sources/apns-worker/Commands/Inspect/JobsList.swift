import ArgumentParser
import Operations
import PrintableText
import PushQueue

struct JobsList: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "list", abstract: "List or count jobs.",
        discussion: """
            Waiting jobs come first, the newest before the others, then claimed jobs, then the others in the order of their next \
            attempt. Redis is read a page at a time, so a large backlog does not block it.

              apns-worker jobs list --state retrying
              apns-worker jobs list --campaign spring-sale --count --by state
              apns-worker jobs list --token 00fc13ad… --json
            """)

    /// A member by which jobs can be counted.
    enum Group: String, CaseIterable {
        case state, app, campaign, reason, deferral, topic, queue
    }

    @OptionGroup(title: "Queues") var queue: QueueOptions

    @OptionGroup(title: "Filters") var options: JobOptions

    @Option(help: "Maximum number. (default: 50; with --json all)") var limit: Int?

    @Flag(help: "Print the number of jobs.") var count = false

    @Option(
        help: """
            Count by state, app, campaign, reason (of the last failure), deferral (its reason), topic or queue, or several, \
            such as state,app.
            """,
        transform: { try Counts<Group>.groups($0, of: "jobs") })
    var by: [Group]?

    @Flag(help: "Print one JSON object per line.") var json = false

    func validate() throws {
        try DeadLetterOptions.check(limit: limit)
        if count || by != nil, limit != nil { throw ValidationError("--limit cannot be combined with --count") }
        _ = try options.filter()
    }

    func run() async throws {
        let filter = try options.filter()
        var (looked, found, queues) = (0, 0, 0)
        let unread: UnreadParts
        if count || by != nil {
            var counts = Counts(by: by ?? [])
            unread = try await QueueChoice.withEach(queue) { fleet, keys, _ in
                looked += try await add(fleet.jobs(of: keys), filter, to: &counts)
                queues += 1
            }
            found = counts.sum
            try counts.print(isJSON: json)
        } else {
            var listing = Listing(limit: limit ?? (json ? .max : 50), isJSON: json)
            unread = try await QueueChoice.withEach(queue) { fleet, keys, count in
                looked += try await listing.add(fleet.jobs(of: keys), filter, showsQueue: count > 1)
                queues += 1
            }
            try listing.end()
            found = listing.written
        }
        guard found == 0 else { return try unread.check() }
        try QueueJobs.reportNothing(filter, looked: looked, queues: queues)
        try unread.check()
    }

    // MARK: Counting

    private func add(_ jobs: QueueJobs, _ filter: JobFilter, to counts: inout Counts<Group>) async throws -> Int {
        let reads = counts.groups.contains { $0 == .app || $0 == .campaign || $0 == .topic }
        return try await jobs.sweep(filter, decodes: reads) { _, page, _ in
            for job in page { counts.add { Self.value($0, of: job, jobs.keys.queue) } }
            return true
        }
    }

    private static func value(_ group: Group, of job: StoredJob, _ queue: String) -> String? {
        switch group {
        case .state: job.state.rawValue
        case .app: job.app.map { String(buffer: $0) }
        case .campaign: job.campaign.map { String(buffer: $0) }
        case .topic: job.topic.map { String(buffer: $0) }
        case .reason: job.failure?.reason
        case .deferral: job.deferral?.reason
        case .queue: queue
        }
    }
}

/// Jobs as a table, or as lines of JSON.
struct Listing {
    let limit: Int
    let isJSON: Bool
    private(set) var written = 0
    private var hasMore = false
    private var table: Table?
    private let output = ByteOutput.standard

    init(limit: Int, isJSON: Bool) {
        self.limit = limit
        self.isJSON = isJSON
    }

    /// Adds the jobs of a queue.
    /// - Returns: the number of jobs that were examined.
    mutating func add(_ jobs: QueueJobs, _ filter: JobFilter, showsQueue: Bool) async throws -> Int {
        guard !hasMore else { return 0 }
        let queue = jobs.keys.queue
        return try await jobs.sweep(filter, inOrder: true) { _, page, now in
            let rows = page.prefix(limit - written).map { JobRow(queue: queue, job: $0, now: now) }
            if page.count > rows.count { hasMore = true }
            try write(rows, showsQueue ? [queue] : [])
            return !hasMore
        }
    }

    private mutating func write(_ rows: [JobRow], _ queue: [String]) throws {
        written += rows.count
        if isJSON {
            for row in rows { try output.write(try row.json(nil) + "\n") }
            return
        }
        let cells = rows.map { queue + $0.cells }
        guard !cells.isEmpty else { return }
        let titles = (queue.isEmpty ? [] : ["QUEUE"]) + JobRow.titles
        if table == nil {
            table = Table(titles, cells)
            try output.write((table?.line(titles) ?? "") + "\n")
        }
        for line in cells { try output.write((table?.line(line) ?? "") + "\n") }
    }

    func end() throws {
        try output.flush()
        if hasMore { Terminal.note("there are more: use --limit, --count, or a filter such as --id\n") }
    }
}
