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

/// The filters of the commands for jobs.
struct JobOptions: ParsableArguments {
    @Option(help: "Jobs in these states, such as waiting,retrying: waiting, retrying, scheduled, deferred or claimed.")
    var state: String?

    @Option(help: "Job with this key, as `jobs list` shows it. Repeatable.") var key: [String] = []

    @Option(help: "Jobs with this ID. Repeatable.") var id: [String] = []

    @Option(help: "Jobs for this device token, in hex or base64, or for this channel. Repeatable.")
    var token: [String] = []

    @Option(help: "Jobs that name this app. Repeatable.") var app: [String] = []

    @Option(help: "Jobs that name this topic. Repeatable.") var topic: [String] = []

    @Option(help: "Jobs of this campaign. Repeatable.") var campaign: [String] = []

    @Option(help: "Jobs whose last failure or deferral has this reason, or prefix as in Too*. Repeatable.")
    var reason: [String] = []

    @Option(help: "Jobs that contain this text as the producer wrote it, ignoring case. Repeatable.")
    var match: [String] = []

    @Option(
        help: ArgumentHelp(
            "Jobs since \(Fields.timeForm), by `enqueued_at` or the first claim.", valueName: "time"))
    var since: String?

    @Option(help: ArgumentHelp("Jobs until such a time.", valueName: "time")) var until: String?

    @Option(help: "Jobs that are due before this time: ISO 8601, seconds since 1970, or a duration from now.")
    var dueBefore: String?

    /// The fields of the filter, and the maximum number of jobs.
    func fields(limit: Int? = nil, all: Bool = false) -> Fields {
        var fields = Fields(refusesEmpty: true)
        fields.append("state", state)
        for (name, values) in [
            ("key", key), ("id", id), ("token", token), ("app", app), ("topic", topic), ("campaign", campaign),
            ("reason", reason), ("match", match),
        ] { fields.append(name, values) }
        for (name, value) in [("since", since), ("until", until), ("due_before", dueBefore)] {
            fields.append(name, value)
        }
        fields.append("limit", limit.map { "\($0)" })
        fields.append("all", all ? "1" : nil)
        return fields
    }

    /// - Parameter now: the time from which durations count back.
    func filter(now: Int64 = Moment.now) throws -> JobFilter {
        try readingFlags { () throws(FieldMistake) in try JobFilter(fields(), now: now) }
    }

    static func key(_ text: String) throws -> String {
        try DeadLetterOptions.key(text, of: "a job", from: "jobs list")
    }
}

extension QueueJobs {
    /// Reports that no job matches.
    /// - Throws: an exit code, if the filter names a job.
    static func reportNothing(_ filter: JobFilter, looked: Int, queues: Int) throws {
        Terminal.note(filter.nothingFound(looked: looked, queues: queues) + "\n")
        if !filter.ids.isEmpty || !filter.keys.isEmpty { throw ExitCode(1) }
    }
}
