import APNS
import ArgumentParser
import NIOCore
import Operations
import PrintableText
import PushJob
import PushQueue
import PushWorker

struct JobsShow: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "show", abstract: "Show jobs: state, last error, next attempt, contents, and what a check finds.",
        discussion: """
            Shows the job as the producer wrote it, with its tokens and its payload. Control characters are removed; `jobs \
            export` prints the unchanged bytes. The check is that of `apns-worker check --job`, with the configured apps; \
            without any it assumes an app that accepts the job.
            """)

    @OptionGroup(title: "Queues") var queue: QueueOptions

    @Argument(help: "Keys of jobs, as `jobs list` shows them.") var keys: [String] = []

    @Option(help: "Jobs with this ID. Repeatable.") var id: [String] = []

    @Option(help: "Maximum number.") var limit = 20

    @Flag(help: "Print one JSON object per line.") var json = false

    func validate() throws {
        try DeadLetterOptions.check(limit: limit)
        guard keys.isEmpty != id.isEmpty else {
            throw ValidationError("name jobs by their keys, as `apns-worker jobs list` shows them, or by --id")
        }
        _ = try filter()
    }

    private func filter() throws -> JobFilter {
        var filter = JobFilter()
        filter.keys = Set(try keys.map(JobOptions.key))
        filter.ids = Set(id.map { Name($0) })
        return filter
    }

    func run() async throws {
        let filter = try filter()
        let output = ByteOutput.standard
        var (looked, shown, queues) = (0, 0, 0)
        // `try?`, because a command that shows jobs needs no credential.
        let apps = (try? WorkerSettings(queue.settings()).apps()) ?? []
        let unread = try await QueueChoice.withEach(queue) { fleet, keys, _ in
            let source = try await fleet.queue(keys)
            let jobs = try await fleet.jobs(of: keys)
            queues += 1
            var rows: [JobRow] = []
            looked += try await jobs.sweep(filter) { _, page, now in
                rows += page.prefix(limit - shown - rows.count).map { JobRow(queue: keys.queue, job: $0, now: now) }
                return shown + rows.count < limit
            }
            try await JobRow.findReplacements(of: &rows, try await fleet.client(for: keys.jobs), keys)
            let state =
                rows.isEmpty ? nil : try await QueueState.read(fleet.client(for: keys.retry), keys, configured: [])
            for var row in rows {
                row.verdicts = JobCheck.of(
                    row.job.original, apps, reported: state?.reported, format: source.format, now: row.now
                ).verdicts.map {
                    JobRow.Verdict(level: $0.level.rawValue, subject: $0.subject, sentence: $0.sentence)
                }
                try output.write(json ? row.json(isDetailed: true) + "\n" : (shown == 0 ? "" : "\n") + Self.page(row))
                shown += 1
            }
        }
        try output.flush()
        guard shown == 0 else { return try unread.check() }
        try QueueJobs.reportNothing(filter, looked: looked, queues: queues)
        try unread.check()
    }
}

extension JobsShow {
    /// Returns all facts about a job, the findings of its check, and the job.
    private static func page(_ row: JobRow) -> String {
        let checks = row.verdicts.map { verdict in
            (name: "check", value: ((verdict.level == "ok" ? "" : "\(verdict.level): ") + verdict.sentence).printable)
        }
        let job = String(buffer: row.job.original).printable
        return row.page(now: row.now, and: checks) + "\n" + job + "\n"
    }
}

struct JobsExport: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "export", abstract: "Print jobs as their producers wrote them, one per line.",
        discussion: """
            For `apns-worker enqueue --unchecked`, an editor, or a backup. It removes nothing. If some of a job's notifications \
            have already ended, it is still exported with all tokens.

              apns-worker jobs export --campaign spring-sale > jobs.ndjson
            """)

    @OptionGroup(title: "Queues") var queue: QueueOptions

    @OptionGroup(title: "Filters") var options: JobOptions

    @Option(help: "Maximum number.") var limit: Int?

    func validate() throws {
        try DeadLetterOptions.check(limit: limit)
        _ = try options.filter()
    }

    func run() async throws {
        let filter = try options.filter()
        let output = ByteOutput.standard
        var (looked, written, queues, skipped, partial) = (0, 0, 0, 0, 0)
        let unread = try await QueueChoice.withEach(queue) { fleet, keys, _ in
            let jobs = try await fleet.jobs(of: keys)
            queues += 1
            looked += try await jobs.sweep(filter) { _, page, _ in
                for job in page.prefix((limit ?? .max) - written - skipped) {
                    guard let line = Self.line(job) else {
                        skipped += 1
                        continue
                    }
                    try output.write(line)
                    try output.write("\n")
                    written += 1
                    if job.envelope.overridesTokens { partial += 1 }
                }
                return written + skipped < limit ?? .max
            }
        }
        try output.flush()
        if partial > 0 {
            Terminal.note(
                "\(Self.jobs(partial)) exported with all tokens, although some of their notifications have ended\n")
        }
        if skipped > 0 {
            Terminal.note("\(Self.jobs(skipped)) skipped: larger than 16 MiB, or not JSON and of several lines\n")
            throw ExitCode(1)
        }
        guard written == 0 else { return try unread.check() }
        try QueueJobs.reportNothing(filter, looked: looked, queues: queues)
        try unread.check()
    }

    private static func jobs(_ count: Int) -> String { count == 1 ? "1 job was" : "\(Words.number(count)) jobs were" }

    /// Returns the producer's bytes on one line; `nil` if that would change them.
    private static func line(_ job: StoredJob) -> ByteBuffer? {
        guard job.isWhole else { return nil }
        let original = job.original
        guard original.readableBytesView.contains(where: { $0 == 0x0A || $0 == 0x0D }) else { return original }
        // Line feeds in JSON are white space; within strings they are escaped.
        guard original.withUnsafeReadableBytes({ (try? JSONScanner.validate($0)) != nil }) else { return nil }
        return ByteBuffer(bytes: original.readableBytesView.map { $0 == 0x0A || $0 == 0x0D ? 0x20 : $0 })
    }
}
