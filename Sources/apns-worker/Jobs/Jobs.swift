import ArgumentParser
import NIOCore
import Operations
import PrintableText
import PushJob
import PushQueue
import PushWorker
import Redis

struct Jobs: ParsableCommand {
    static let configuration = CommandConfiguration(
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

/// The filters of the commands for jobs.
struct JobOptions: ParsableArguments {
    @Option(
        help: "Jobs in these states, such as waiting,retrying: waiting, retrying, scheduled, deferred or claimed.",
        transform: Self.states)
    var state: Set<StoredJob.State>?

    @Option(help: "Job with this key, as `jobs list` shows it. Repeatable.") var key: [String] = []

    @Option(help: "Jobs with this ID. Repeatable.") var id: [String] = []

    @Option(help: "Jobs for this device token, in hex or base64, or for this channel. Repeatable.")
    var token: [String] = []

    @Option(help: "Jobs that name this app. Repeatable.") var app: [String] = []

    @Option(help: "Jobs that name this topic. Repeatable.") var topic: [String] = []

    @Option(help: "Jobs of this campaign. Repeatable.") var campaign: [String] = []

    @Option(help: "Jobs whose last failure has this reason, or prefix as in Too*. Repeatable.")
    var reason: [String] = []

    @Option(help: "Jobs that contain this text as the producer wrote it, ignoring case. Repeatable.")
    var match: [String] = []

    @Option(help: "Jobs of at least this age, such as 45s, 30m, 1h30m or 7d, by `enqueued_at` or the first claim.")
    var olderThan: String?

    @Option(help: "Jobs of at most this age.") var newerThan: String?

    @Option(help: "Jobs that are due before this time: ISO 8601, seconds since 1970, or a duration from now.")
    var dueBefore: String?

    private static func states(_ text: String) throws -> Set<StoredJob.State> {
        let states = try text.split(separator: ",", omittingEmptySubsequences: false).map { name in
            guard let state = StoredJob.State(rawValue: String(name)) else {
                let known = StoredJob.State.allCases.map(\.rawValue)
                let hint = name.nearest(of: known).map { "; did you mean \($0)?" } ?? ""
                throw ValidationError("\(name) is not a state; states are \(known.joined(separator: ", "))\(hint)")
            }
            return state
        }
        return Set(states)
    }

    func filter() throws -> JobFilter {
        for (flag, values) in [
            ("id", id), ("token", token), ("app", app), ("topic", topic), ("campaign", campaign), ("reason", reason),
            ("match", match),
        ] where values.contains("") {
            throw ValidationError("--\(flag) is empty; set a value or omit it")
        }
        var filter = JobFilter()
        filter.states = state ?? []
        filter.keys = Set(try key.map(Self.key))
        filter.ids = Set(id)
        filter.tokens = Set(token.flatMap { [$0, TokenText.normalized($0)] })
        filter.apps = Set(app)
        filter.topics = Set(topic)
        filter.campaigns = Set(campaign)
        filter.reasons = reason
        filter.texts = match
        filter.olderThan = try DeadLetterOptions.age(olderThan, "--older-than")
        filter.newerThan = try DeadLetterOptions.age(newerThan, "--newer-than")
        if let older = filter.olderThan, let newer = filter.newerThan, older > newer {
            throw ValidationError("no job is older than \(olderThan ?? "") and newer than \(newerThan ?? "")")
        }
        if let dueBefore {
            guard
                let time = JobTime.milliseconds(dueBefore)
                    ?? JobDuration.seconds(dueBefore).map({
                        Moment.now + $0 * 1000
                    })
            else {
                throw ValidationError(
                    "--due-before must be a time such as 2026-11-21T08:00:00Z, seconds since 1970, or a duration such as 2h"
                )
            }
            filter.dueBefore = time
        }
        return filter
    }

    static func key(_ text: String) throws -> String {
        try DeadLetterOptions.key(text, of: "a job", from: "jobs list")
    }
}

extension QueueJobs {
    /// Runs `body` for each queue of the settings, with a client that is closed afterwards.
    /// - Parameter areAllMeant: false for a command that changes jobs without `--all-queues`.
    /// - Throws: the errors of `body`; those of Redis as a ``CommandFailure``.
    static func withEach(
        _ options: QueueOptions, areAllMeant: Bool = true,
        _ body: (QueueJobs, QueueConfiguration, Settings) async throws -> Void
    ) async throws {
        let settings = try options.settings()
        let queues = try settings.queues()
        if queues.count > 1, !areAllMeant, options.given[.queueNames] == nil {
            let names = queues.map(\.keys.queue).joined(separator: ",")
            throw ValidationError("several queues are configured; choose with --queue \(names), or pass --all-queues")
        }
        for queue in queues {
            try await settings.withClient(for: queue.keys.retry) { client in
                try await body(
                    QueueJobs(client, queue.keys, format: queue.format, limits: queue.limits), queue, settings)
            }
        }
    }

    /// Reports that no job matches.
    /// - Throws: an exit code, if the filter names a job.
    static func reportNothing(_ filter: JobFilter, looked: Int, queues: Int) throws {
        let place = queues == 1 ? "the queue" : "the \(queues) queues"
        Terminal.note(
            looked == 0 && filter.matchesAll
                ? "\(place) \(queues == 1 ? "has" : "have") no such jobs\n"
                : "no job matches (\(Words.number(looked)) searched in \(place))\n")
        if !filter.ids.isEmpty || !filter.keys.isEmpty { throw ExitCode(1) }
    }
}
