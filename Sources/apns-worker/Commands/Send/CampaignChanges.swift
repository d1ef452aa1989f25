import ArgumentParser
import Operations
import PrintableText
import PushJob
import PushQueue
import PushWorker

/// The campaign for a command, and its queues.
struct CampaignOptions: ParsableArguments {
    @Argument(help: "Name of the campaign.") var campaign: String

    @OptionGroup(title: "Queues") var fleet: FleetOptions

    func validate() throws {
        guard JobLabels.isCampaign(campaign) else {
            throw ValidationError("the name of a campaign has 1 to 100 bytes, and no control characters")
        }
    }

    /// Runs `body` with all queues, or with those of `--queue`.
    func withQueues(_ body: (Fleet, [QueueKeys]) async throws -> Void) async throws {
        try await fleet.withFleet { fleet in try await body(fleet, fleet.notedQueues()) }
    }

    /// Reads the campaign in the queues that know it. If no queue does, reports that with the latest campaigns.
    /// - Parameter unread: gets the queues that can't be read; they are also reported.
    /// - Throws: an exit code if no queue knows it; `RedisError` if no queue can be read.
    func read(_ fleet: Fleet, _ queues: [QueueKeys], _ unread: inout UnreadParts) async throws -> [CampaignStatus] {
        let found = try await CampaignStatus.read(campaign, in: queues, fleet, &unread)
        unread.report()
        guard found.isEmpty else { return found }
        let known = try await CampaignStatus.latest(20, in: queues, fleet, &unread).map(\.campaign.shown)
        Terminal.note(
            "no queue knows a campaign \(campaign.shown)"
                + (known.isEmpty
                    ? "; there are none\n" : "; the latest are \(known.prefix(10).joined(separator: ", "))\n"))
        throw ExitCode(1)
    }
}

/// The options of commands that change how a campaign is sent.
struct CampaignChangeOptions: ParsableArguments {
    @OptionGroup var options: CampaignOptions

    @Option(help: "Reason, for other operators.") var reason: String?

    @Flag(help: "Exit with status 0 although no queue knows the campaign yet.") var force = false

    @Flag(help: "Do not ask for confirmation.") var yes = false

    @Flag(help: "Print JSON: one object per queue.") var json = false

    func change(
        _ change: JobCommands.Change, _ more: [(name: String, value: String?)] = []
    ) throws -> (Int64) throws(FieldMistake) -> CampaignChange {
        try made(more) { fields, now throws(FieldMistake) in try CampaignChange(change, fields, now: now) }
    }

    /// Returns a function that makes a change from the fields. Its parameter is the current time in milliseconds since 1970.
    func made<Made: Change>(
        _ more: [(name: String, value: String?)],
        _ change: @escaping (Fields, _ now: Int64) throws(FieldMistake) -> Made
    ) throws -> (Int64) throws(FieldMistake) -> Made {
        var fields = Fields(refusesEmpty: true)
        fields.append("campaign", options.campaign)
        fields.append("reason", reason)
        for (name, value) in more { fields.append(name, value) }
        let make = { (now: Int64) throws(FieldMistake) in try change(fields, now) }
        // Mistakes are reported before anything else is done.
        _ = try readingFlags { () throws(FieldMistake) in try make(Moment.now) }
        return make
    }

    /// Changes the campaign in all queues, or in those of `--queue`, and waits until workers have confirmed it.
    /// - Parameters:
    ///   - asks: true to ask the question of the plan.
    ///   - reversal: the command that reverses the change, and its purpose.
    func run(
        _ make: (Int64) throws(FieldMistake) -> some Change, asks: Bool = false,
        reversal: (purpose: String, command: [String])? = nil
    ) async throws {
        let settings = try options.fleet.settings()
        try await options.fleet.withFleet { fleet in
            let found = try await fleet.queues()
            var desk = try Desk(fleet, found.keys, settings, isForced: force)
            desk.missingQueues = found.note
            let command = ChangeCommand(isJSON: json, isConfirmed: yes, asks: { asks && $0.question != nil })
            try await command.run(make(Moment.now), desk)
            if !json, let (purpose, words) = reversal {
                let command = fleet.access.command(["campaign"] + words, options.campaign)
                print("\(purpose):\n  \(command)")
            }
        }
    }
}

struct CampaignPause: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "pause", abstract: "Pause a campaign.",
        discussion: """
            Workers defer its jobs, without spending attempts, until `apns-worker campaign resume`. Jobs can still expire.
            """)

    @OptionGroup var change: CampaignChangeOptions

    func validate() throws { _ = try change.change(.pause) }

    func run() async throws {
        try await change.run(change.change(.pause), reversal: ("To end the pause", ["resume"]))
    }
}

struct CampaignCancel: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "cancel", abstract: "Cancel a campaign.",
        discussion: """
            Workers send no more of its notifications, except those in flight. Jobs that wait, retry or are \
            scheduled are dropped when their turn comes, so the command takes no longer for a million jobs than for one. They \
            are kept apart from dead letters, up to dead_letters_limit; `apns-worker campaign requeue` sends them \
            after all. With --discard they are dropped without a trace.

            The campaign stays cancelled for seven days in all queues, also for jobs that are enqueued later. A queue that cannot \
            be written is named, and the exit status is then 1. Ctrl-C ends the wait for the workers, not the cancellation.
            """)

    @OptionGroup var change: CampaignChangeOptions

    @Flag(help: "Delete the jobs instead of keeping them as cancelled jobs; this cannot be undone.") var discard = false

    private func made() throws -> (Int64) throws(FieldMistake) -> CampaignChange {
        try change.change(.cancel(discard: discard), [("discard", discard ? "1" : nil)])
    }

    func validate() throws {
        _ = try made()
        try Confirmation.check(isGiven: change.yes)
    }

    func run() async throws {
        try await change.run(
            made(), asks: true, reversal: discard ? nil : ("To send it after all", ["requeue"]))
    }
}

struct CampaignRequeue: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "requeue", abstract: "Undo the cancellation of a campaign.",
        discussion: """
            Jobs that still wait are sent, and those that were kept as cancelled are requeued.
            """)

    @OptionGroup var change: CampaignChangeOptions

    @Option(help: "Maximum number of requeued jobs per second. (default: unlimited)") var rate: Int?

    private func made() throws -> (Int64) throws(FieldMistake) -> CampaignChange {
        try change.change(.uncancel, [("rate", rate.map { "\($0)" })])
    }

    func validate() throws { _ = try made() }

    func run() async throws { try await change.run(made()) }
}

struct CampaignResume: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "resume", abstract: "End the pause of a campaign.")

    @OptionGroup var change: CampaignChangeOptions

    func validate() throws { _ = try change.change(.resume) }

    func run() async throws { try await change.run(change.change(.resume)) }
}

struct CampaignLimit: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "limit", abstract: "Limit the rate of a campaign.",
        discussion: """
            The limit applies to all workers and queues together. Jobs beyond it are deferred until their turn, so other \
            jobs do not wait for them. A limit ends with --off, and seven days after its last change.
            """)

    @OptionGroup var change: CampaignChangeOptions

    @Option(help: "Maximum number of notifications per second.") var perSecond: Int?

    @Flag(help: "End the limit.") var off = false

    private func made() throws -> (Int64) throws(FieldMistake) -> CampaignChange {
        try change.change(
            .limit(perSecond: perSecond),
            [
                ("per_second", perSecond.map { "\($0)" }), ("off", off ? "1" : nil),
            ])
    }

    func validate() throws { _ = try made() }

    func run() async throws { try await change.run(made()) }
}

struct CampaignGuardCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "guard", abstract: "Pause a campaign automatically when too much of it fails.",
        discussion: """
            Workers pause the campaign as soon as one of the shares is above its limit, with the reason. `campaign resume` \
            continues, and the guard then counts from that pause on; `campaign cancel` ends the campaign.

              apns-worker campaign guard spring-sale --stop-if 'invalid_token>5%,dead>1%,retried>20%' --min 1000

            A share is one of the notifications that ended since the guard was set: invalid_token, dead, expired, dropped or \
            suppressed, or a reason as in dead:PayloadTooLarge. With retried, or a reason as in \
            retried:ServiceUnavailable, it is the share of retries in all attempts that ended. Each queue compares its own numbers. \
            The first one above a limit pauses the other queues of its workers, too.
            """)

    @OptionGroup var change: CampaignChangeOptions

    @Option(help: "Shares above which the campaign is paused, such as 'invalid_token>5%,dead>1%'.")
    var stopIf: String?

    @Option(help: "Number of notifications in a queue below which the campaign is not paused. (default: 1000)")
    var min: Int?

    @Flag(help: "Remove the guard.") var off = false

    private func made() throws -> (Int64) throws(FieldMistake) -> CampaignGuardChange {
        try change.made(
            [("stop_if", stopIf), ("min", min.map { "\($0)" }), ("off", off ? "1" : nil)]
        ) { fields, _ throws(FieldMistake) in try CampaignGuardChange(fields, reasons: Reason.Code.names) }
    }

    func validate() throws { _ = try made() }

    func run() async throws {
        try await change.run(made(), reversal: off ? nil : ("To remove the guard", ["guard", "--off"]))
    }
}
