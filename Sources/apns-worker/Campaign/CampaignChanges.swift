import ArgumentParser
import Operations
import PrintableText
import PushQueue
import Redis

/// The options of commands that change how a campaign is sent.
struct CampaignChangeOptions: ParsableArguments {
    @OptionGroup var options: CampaignOptions

    @Option(help: "Reason, for other operators.") var reason: String?

    @Flag(help: "Print JSON: one object per queue.") var json = false

    func validate() throws { try Person.check(reason: reason) }

    /// Changes the campaign in each queue, and waits until workers have confirmed the change.
    func change(_ change: JobCommands.Change, in queues: [QueueKeys], _ fleet: Fleet) async throws -> [CampaignChange] {
        let changes = try await CampaignChange.apply(
            change, to: options.campaign, by: Person.name, reason: reason?.printable ?? "", in: queues, fleet)
        await fleet.record(.init(change), "campaign \(options.campaign)", detail: reason)
        try await CampaignChange.makeDue(after: change, changes, of: options.campaign, in: queues, fleet)
        return changes
    }

    func queues(_ fleet: Fleet, _ queues: [QueueKeys]) async throws -> (keys: [QueueKeys], isKnown: Bool) {
        try await CampaignStatus.queues(knowing: options.campaign, of: queues, fleet)
    }

    /// Prints changes.
    /// - Returns: the exit status: 1 if workers have not confirmed them.
    func report(_ changes: [CampaignChange], _ sentence: (CampaignChange) -> String) throws -> ExitCode? {
        for change in changes {
            if json {
                print(try JSONLine.text(change, keys: .convertToSnakeCase))
            } else {
                print(sentence(change))
            }
        }
        let unconfirmed = changes.reduce(0) { $0 + $1.unconfirmed }
        guard unconfirmed > 0 else { return nil }
        Terminal.note(
            """
            \(unconfirmed) \(unconfirmed == 1 ? "lane" : "lanes") with jobs did not confirm it within 10 seconds; \
            see `apns-worker status`\n
            """)
        return ExitCode(1)
    }
}

struct CampaignPause: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "pause", abstract: "Pause a campaign.",
        discussion: """
            Workers defer its jobs, without spending attempts, until `apns-worker campaign resume`. Jobs can still expire.
            """)

    @OptionGroup var change: CampaignChangeOptions

    func run() async throws {
        try await change.options.withQueues { fleet, queues in
            let changes = try await change.change(.pause, in: change.queues(fleet, queues).keys, fleet)
            let status = try change.report(changes) { change in
                if change.state == "cancelled" {
                    return """
                        campaign \(change.campaign) in queue \(change.queue) is cancelled; to send it after all: \
                        apns-worker campaign requeue \(change.campaign)
                        """
                }
                return """
                    campaign \(change.campaign) in queue \(change.queue) is paused. To end the pause:
                      apns-worker campaign resume \(change.campaign)
                    """
            }
            if let status { throw status }
            if changes.contains(where: { $0.state == "cancelled" }) { throw ExitCode(1) }
        }
    }
}

struct CampaignCancel: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "cancel", abstract: "Cancel a campaign.",
        discussion: """
            Workers send no more of its notifications, except those in flight. Jobs that wait, retry or are \
            scheduled are dropped when their turn comes, so the command takes no longer for a million jobs than for one. They \
            become dead letters with the reason Cancelled, up to max_dead_letters; `apns-worker campaign requeue` sends them \
            after all. With --discard they are dropped without a trace.

            The campaign stays cancelled for seven days, also for jobs that are enqueued later.
            """)

    @OptionGroup var change: CampaignChangeOptions

    @Flag(help: "Drop the jobs without keeping them as dead letters; this cannot be undone.") var discard = false

    @Flag(help: "Do not ask for confirmation.") var yes = false

    func run() async throws {
        try await change.options.withQueues { fleet, queues in
            let (known, isKnown) = try await change.queues(fleet, queues)
            let name = change.options.campaign
            let names = known.map(\.queue).joined(separator: ", ")
            let what = "campaign \(name.printable) in \(known.count == 1 ? "queue" : "queues") \(names)"
            if !isKnown {
                Terminal.note("no notification of campaign \(name.printable) has ended yet; check the name\n")
            }
            try Confirmation.demand(
                discard ? "Cancel \(what) and discard its jobs? This cannot be undone." : "Cancel \(what)?",
                isGiven: yes)
            let changes = try await change.change(.cancel(discard: discard), in: known, fleet)
            let status = try change.report(changes) { change in
                let delivered = Words.number(change.outcomes["delivered"] ?? 0)
                let inFlight = change.inFlight ?? 0
                let inWords =
                    inFlight == 1
                    ? "1 notification was in flight" : "\(Words.number(inFlight)) notifications were in flight"
                return """
                    campaign \(change.campaign) in queue \(change.queue) is cancelled: \(delivered) were delivered, and \
                    \(inWords). \(discard ? "Its other jobs are discarded." : "To send it after all:")
                    """
                        + (discard ? "" : "\n  apns-worker campaign requeue \(change.campaign)")
            }
            if let status { throw status }
        }
    }
}

struct CampaignRequeue: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "requeue", abstract: "Undo the cancellation of a campaign.",
        discussion: """
            Jobs that still wait are sent, and those that became dead letters with the reason Cancelled are requeued.
            """)

    @OptionGroup var change: CampaignChangeOptions

    @Option(help: "Maximum number of requeued jobs per second. (default: unlimited)") var rate: Int?

    func validate() throws {
        try DeadLetterOptions.check(rate: rate)
    }

    func run() async throws {
        try await change.options.withQueues { fleet, queues in
            let (known, isKnown) = try await change.queues(fleet, queues)
            guard isKnown else { try await change.options.unknown(fleet, queues) }
            let changes = try await change.change(.uncancel, in: known, fleet)
            Interruption.watch()
            var (requeued, failure): (Int, CommandFailure?) = (0, nil)
            for keys in known where failure == nil {
                var filter = DeadLetterFilter()
                filter.reasons = ["Cancelled"]
                filter.campaigns = [change.options.campaign]
                let letters = DeadLetters(try await fleet.client(for: keys.jobs), keys)
                var sweep = DeadLetterSweep(letters, .requeue(first: false, keepsAttempts: false), filter)
                sweep.pace = RequeuePace(perSecond: rate)
                var summary = DeadLetterSummary(queue: keys.queue, verb: "requeued", isDryRun: false)
                try await sweep.run(into: &summary, DeadLetterProgress("requeued", of: nil, isShown: !change.json))
                requeued += summary.tally.chosen
                failure = summary.error
                if summary.tally.isInterrupted { failure = CommandFailure(.attention, "interrupted") }
            }
            let status = try change.report(changes) { change in
                change.before == "cancelled"
                    ? "campaign \(change.campaign) in queue \(change.queue) is sent again"
                    : "campaign \(change.campaign) in queue \(change.queue) was not cancelled"
            }
            if !change.json { print("requeued \(Words.number(requeued)) \(requeued == 1 ? "job" : "jobs")") }
            if let failure {
                throw CommandFailure(failure.status, "requeueing ended: \(failure); repeat the command to continue")
            }
            if let status { throw status }
        }
    }
}

struct CampaignResume: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "resume", abstract: "End the pause of a campaign.")

    @OptionGroup var change: CampaignChangeOptions

    func run() async throws {
        try await change.options.withQueues { fleet, queues in
            let (known, isKnown) = try await change.queues(fleet, queues)
            guard isKnown else { try await change.options.unknown(fleet, queues) }
            let changes = try await change.change(.resume, in: known, fleet)
            let status = try change.report(changes) { change in
                switch change.before {
                case "paused": "campaign \(change.campaign) in queue \(change.queue) is resumed"
                case "cancelled":
                    """
                    campaign \(change.campaign) in queue \(change.queue) is cancelled; to send it after all: \
                    apns-worker campaign requeue \(change.campaign)
                    """
                default: "campaign \(change.campaign) in queue \(change.queue) was not paused"
                }
            }
            if let status { throw status }
            if !changes.contains(where: { $0.before == "paused" }) { throw ExitCode(1) }
        }
    }
}

struct CampaignLimit: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "limit", abstract: "Limit the rate of a campaign.",
        discussion: """
            The limit applies to all workers together, per queue. Jobs beyond it are deferred until their turn, so other \
            jobs do not wait for them. A limit ends with --off, and seven days after its last change.
            """)

    @OptionGroup var change: CampaignChangeOptions

    @Option(help: "Maximum number of notifications per second.") var perSecond: Int?

    @Flag(help: "End the limit.") var off = false

    func validate() throws {
        guard (perSecond != nil) != off else { throw ValidationError("pass either --per-second or --off") }
        try DeadLetterOptions.check(rate: perSecond, "--per-second")
    }

    func run() async throws {
        try await change.options.withQueues { fleet, queues in
            let known = try await change.queues(fleet, queues).keys
            let changes = try await change.change(.limit(perSecond: perSecond), in: known, fleet)
            let status = try change.report(changes) { change in
                "campaign \(change.campaign) in queue \(change.queue) "
                    + (change.limitPerSecond.map { "is limited to \(Words.number($0)) per second" } ?? "has no limit")
            }
            if let status { throw status }
        }
    }
}
