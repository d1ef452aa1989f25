import APNS
import ArgumentParser
import Glibc
import NIOCore
import Operations
import PushJob
import PushQueue
import PushWorker
import Redis

struct Enqueue: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "enqueue",
        abstract: "Enqueue jobs: one by flags, or many as NDJSON on standard input.",
        discussion: """
            One job:    apns-worker enqueue --token 00fc13ad… --alert 'Hello'
                        apns-worker enqueue --token 00fc13ad… --title 'Hello' --body 'World' --badge 1 --sound default
            Many jobs:  apns-worker enqueue < jobs.ndjson     (one JSON object per line)

            Lines that no worker could send, such as invalid JSON, a malformed device token, an app that no worker has or a \
            payload that is too large, are reported with their numbers and not enqueued. All other lines are, and the exit \
            status is 1. Likely mistakes are noted: the first of a kind with its line, the others as a number; with \
            --strict such jobs are refused too. A job without an ID gets one. An object can span several lines. With \
            --unchecked all lines are enqueued unchanged.

            --wait follows a job to its outcome, and exits with 1 if it is not delivered. The job asks for its result with \
            `keep_result`, so this works with any setting of `results`.

            With --replicas 1 a job counts as enqueued when a replica has it too, so that a failover does not lose it. If \
            too few replicas confirm in time, the exit status is 1 and the error names the jobs. They are in the queue \
            nevertheless, so enqueueing them again may send them twice. Lines after them are not enqueued.

            With --format sidekiq or resque, jobs are written in Sidekiq's form with the first --job-class, or PushJob. Lines \
            must be in that form.
            """)

    @OptionGroup(title: "Queue") var queue: QueueOptions

    @Option(help: "Device token in hex. Repeatable.") var token: [String] = []
    @Option(help: "Broadcast channel ID, instead of devices.") var channel: String?
    @Option(help: "Payload, a JSON object.") var payload: String?
    @Flag(help: "Shorten the alert's body if the payload is too long.") var truncate = false
    @Option(help: "ID of the job. Repetitions with the same ID carry the same apns-id.") var id: String?
    @Option(help: "App to send through.") var app: String?
    @Option(help: "Topic. (default: the app's)") var topic: String?
    @Option(help: "Push type: alert, background, voip, ….") var pushType: String?
    @Option(help: "Priority: 10, 5 or 1.") var priority: Int?
    @Option(help: "Expiration: seconds since 1970, ISO 8601, a duration such as 1h, or 0 for immediate delivery only.")
    var expiration: String?
    @Option(help: "Collapse ID. A device shows only the last notification with the same ID.") var collapseID: String?
    @Option(help: "Time in which no other job with the same --id is sent, such as 1h; at most 30d.")
    var uniqueFor: String?
    @Option(
        help: ArgumentHelp(
            "Key, such as order-17: older waiting jobs with the same key are dropped.", valueName: "key"))
    var replaces: String?
    @Flag(help: "Let a device that receives the notification twice show it once.") var collapseDuplicates = false
    @Option(help: "Maximum attempts.") var maxAttempts: Int?
    @Option(help: "W3C trace context of the job: 00-<trace id>-<parent id>-01.")
    var traceparent: String?
    @Option(help: "Time to send the job: ISO 8601, seconds since 1970, or a duration from now such as 30m.")
    var sendAt: String?
    @Option(help: "Campaign that the job belongs to.") var campaign: String?
    @Option(
        help: ArgumentHelp(
            "Tenant or another key: while jobs of several keys wait, each key gets an equal share.", valueName: "key"))
    var fair: String?
    @Option(help: "Maximum notifications per second of all jobs with the same --fair. (default: no limit)")
    var fairPerSecond: Int?
    @Flag(help: "Send the job before the others that wait in its queue.") var urgent = false
    @Option(
        help: ArgumentHelp(
            "Label that results, dead letters and logs carry. Repeatable, up to \(JobLabels.maximumCount).",
            valueName: "name=value"))
    var label: [String] = []
    @Flag(help: "Put the job at the head of the queue.") var first = false
    @Flag(help: "Enqueue jobs without checking them.") var unchecked = false
    @Flag(help: "Refuse jobs with likely mistakes, such as misspelled members.") var strict = false
    @Flag(help: "Print a JSON object with id and queue for each job, and one for each kind of note.") var json = false
    @Option(help: ArgumentHelp("Wait for the outcome of the job, for at most this time.", valueName: "duration"))
    var wait: String?

    @Option(
        help: "Number of replicas that must confirm the jobs. Uses WAIT; the Redis user needs +wait. (default: none)")
    var replicas: Int?
    @Option(help: "Maximum time to wait for the replicas of each batch of up to 1000 jobs. (default: 5s)")
    var replicasTimeout: String?

    @OptionGroup(title: "Short forms, instead of a payload") var shortForms: ShortFormOptions

    func validate() throws {
        _ = try waitLimit()
        if strict, unchecked { throw ValidationError("--strict and --unchecked cannot be combined") }
        guard let replicas else {
            if replicasTimeout != nil { throw ValidationError("--replicas-timeout is for --replicas") }
            return
        }
        guard (1...1000).contains(replicas) else { throw ValidationError("--replicas must be from 1 to 1000") }
        _ = try confirmation()
    }

    /// Returns the confirmation that a push waits for; `nil` if the master's answer is enough.
    private func confirmation() throws -> PushConfirmation? {
        // To Redis, 0 means forever.
        let timeout = try replicasTimeout.map { try DurationText.option($0, "--replicas-timeout", 1...3600) }
        return replicas.map { PushConfirmation(replicas: $0, milliseconds: timeout ?? 5000) }
    }

    private func waitLimit() throws -> Int? {
        try wait.map { try DurationText.option($0, "--wait", 1...86_400) }
    }

    func run() async throws {
        // Mistakes in flags are reported before any wait for Redis.
        let settings = try queue.settings()
        let configuration = try queue.ofJobs(settings)
        _ = try jobOfFlags(configuration.keys, configuration.format).map {
            if !unchecked {
                _ = try EnqueueCheck(format: configuration.format, apps: nil, isStrict: strict).prepare($0.body)
            }
        }
        try await FleetOptions.withFleet(settings, searches: false) { fleet in
            let source = try await fleet.queue(configuration.keys)
            // Redis does not have the classes of Sidekiq's jobs. Only the settings have them.
            let format = source.format == configuration.format.withoutClasses ? configuration.format : source.format
            let keys = source.keys
            let job = try jobOfFlags(keys, format)
            let client = try await fleet.client(for: keys.jobs)
            let state = try await QueueState.read(client, keys, configured: (try? settings.appNames) ?? [])
            state.warn()
            let check = unchecked ? nil : EnqueueCheck(format: format, apps: state.apps, isStrict: strict)
            if let job {
                try await enqueue(job, check, client, keys)
            } else {
                try await enqueueLines(check, client, keys, fleet.access)
            }
        }
    }

    // MARK: A job from flags

    /// The job described by the flags.
    private struct FlagJob {
        let body: ByteBuffer
        let id: String
        /// The number of its notifications.
        let notifications: Int
    }

    /// - Returns: `nil` if the jobs are on standard input.
    private func jobOfFlags(_ keys: QueueKeys, _ format: JobFormat) throws -> FlagJob? {
        let members = try shortForms.members()
        guard !token.isEmpty || channel != nil || payload != nil || !members.isEmpty else {
            if let flag = flagOfOneJob {
                throw ValidationError(
                    "--\(flag) is for a job given by flags, with --token and --alert or --payload; "
                        + "in lines, set the member")
            }
            if isatty(STDIN_FILENO) == 1 {
                throw ValidationError(
                    "pass --token and --alert or --payload, or write jobs as lines of JSON to standard input")
            }
            return nil
        }
        let now = Moment.now
        let id = self.id ?? NewID.make()
        do {
            let devices = Set(token.map { (try? DeviceToken($0)).map { String(buffer: $0.hex) } ?? $0 })
            switch format {
            case .native:
                return FlagJob(
                    body: try makeJob(members, id: id, enqueuedAt: now), id: id, notifications: max(1, devices.count))
            // In Sidekiq's format, the time is a member of the wrapper.
            case .sidekiq(let classes):
                let wrapper = SidekiqWrapper(queue: keys.queue, className: classes.first ?? "PushJob")
                return FlagJob(
                    body: wrapper.wrap(
                        try makeJob(members, id: self.id, enqueuedAt: nil), id: self.id == nil ? id : NewID.make(),
                        at: now),
                    id: id, notifications: max(1, devices.count))
            }
        } catch let error as ValidationError {
            throw error
        } catch {
            throw ValidationError("\(error)")
        }
    }

    /// A given flag that describes one job, and so has no effect on lines.
    private var flagOfOneJob: String? {
        let flags = [
            ("id", id != nil), ("app", app != nil), ("topic", topic != nil), ("push-type", pushType != nil),
            ("priority", priority != nil), ("expiration", expiration != nil), ("collapse-id", collapseID != nil),
            ("unique-for", uniqueFor != nil), ("replaces", replaces != nil), ("truncate", truncate),
            ("collapse-duplicates", collapseDuplicates),
            ("max-attempts", maxAttempts != nil), ("traceparent", traceparent != nil), ("send-at", sendAt != nil),
            ("campaign", campaign != nil), ("fair", fair != nil), ("fair-per-second", fairPerSecond != nil),
            ("urgent", urgent), ("label", !label.isEmpty), ("wait", wait != nil),
        ]
        return flags.first(where: \.1)?.0
    }

    private func makeJob(
        _ members: [JobMember: JobEncoder.Value], id: String?, enqueuedAt: Int64?
    ) throws -> ByteBuffer {
        guard token.isEmpty != (channel == nil) else {
            throw ValidationError("a job needs --token" + (channel == nil ? "" : " or --channel, and not both"))
        }
        guard members.isEmpty != (payload == nil) else {
            throw ValidationError("a job needs either --payload or --alert, or other flags that make up a payload")
        }
        guard fair != nil || fairPerSecond == nil else { throw ValidationError("--fair-per-second needs --fair") }
        var encoder = JobEncoder(tokens: token, payload: payload.map { ByteBuffer(string: $0) })
        encoder.members.merge(members) { $1 }
        for (member, text) in [
            (.channel, channel), (.id, id), (.campaign, campaign), (.fair, fair), (.replaces, replaces), (.app, app),
            (.topic, topic), (.pushType, pushType), (.collapseID, collapseID), (.traceparent, traceparent),
        ] as [(JobMember, String?)] {
            encoder.members[member] = text.map { .text($0) }
        }
        for (member, number) in [
            (.priority, priority), (.maxAttempts, maxAttempts), (.fairPerSecond, fairPerSecond),
        ] as [(JobMember, Int?)] {
            encoder.members[member] = number.map { .integer(Int64($0)) }
        }
        for (member, isSet) in [
            (.truncate, truncate), (.collapseDuplicates, collapseDuplicates), (.urgent, urgent),
            (.keepResult, wait != nil),
        ] as [(JobMember, Bool)] where isSet {
            encoder.members[member] = .flag(true)
        }
        if !label.isEmpty { encoder.members[.labels] = .labels(try label.map(Self.label)) }
        encoder.members[.sendAt] = try sendTime().map { .time($0) }
        encoder.members[.enqueuedAt] = enqueuedAt.map { .time($0) }
        if let expiration {
            guard let parsed = Expiration(expiration) else {
                throw ValidationError(
                    "--expiration must be 0, seconds since 1970, an ISO 8601 time, or a duration such as 45s, 30m, 1h30m or 7d"
                )
            }
            encoder.members[.expiration] = .expiration(parsed)
        }
        if let uniqueFor {
            let range = Int(DurationText.uniqueFor.lowerBound)...Int(DurationText.uniqueFor.upperBound)
            let milliseconds = try DurationText.option(uniqueFor, "--unique-for", range, smallest: .seconds)
            guard self.id != nil else { throw ValidationError("--unique-for needs --id") }
            encoder.members[.uniqueFor] = .text("\(milliseconds / 1000)s")
        }
        if let traceparent, TraceParent(ByteBuffer(string: traceparent)) == nil {
            throw ValidationError("--traceparent must be \(JobMember.traceparent.expectation)")
        }
        return try encoder.encode()
    }

    private static func label(_ text: String) throws -> (name: String, value: String) {
        let parts = text.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false).map(String.init)
        guard parts.count == 2 else { throw ValidationError("--label must be name=value, not \(text)") }
        return (parts[0], parts[1])
    }

    private func sendTime() throws -> Int64? {
        guard let sendAt else { return nil }
        if let milliseconds = DurationText.milliseconds(sendAt) { return Moment.now + Int64(milliseconds) }
        guard let time = JobTime.milliseconds(sendAt) else {
            throw ValidationError(
                """
                --send-at must be a duration such as 30m, seconds since 1970, or an ISO 8601 time with Z or an offset, such \
                as 2030-01-31T12:00:00Z
                """)
        }
        return time
    }

    private func enqueue(
        _ job: FlagJob, _ check: EnqueueCheck?, _ client: RedisClient, _ keys: QueueKeys
    ) async throws {
        let hints = try check?.prepare(job.body).hints ?? []
        for hint in hints { Terminal.note("note: \(hint.detail)\n") }
        var following: OutcomeWatch?
        if let limit = try waitLimit() {
            following = try await OutcomeWatch(
                of: job.id, notifications: job.notifications, within: limit, client, keys)
        }
        // The campaign stays open, because another call may enqueue more of its jobs.
        var campaigns = OpenCampaigns()
        let pushed = try await push([job.body], &campaigns, client, keys)
        if let shortfall = pushed.shortfall {
            Terminal.note(
                """
                enqueued 1 job on \(keys.queue), id \(job.id), but \(shortfall): a failover may lose it; enqueueing it again \
                may send it twice

                """)
            throw ExitCode(1)
        }
        try report([job.id], keys, "enqueued 1 job on \(keys.queue), id \(job.id)\(pushed.inWords("it"))")
        guard var following else { return }
        let isDelivered: Bool
        do {
            isDelivered = try await following.follow(isJSON: json)
        } catch {
            Terminal.note("the job is in the queue nevertheless; its outcome is not known\n")
            throw error
        }
        if !isDelivered { throw ExitCode(1) }
    }

    /// Prints the IDs of jobs as JSON, or a line of text.
    private func report(_ ids: [String?], _ keys: QueueKeys, _ line: String?) throws {
        guard json else {
            if let line { Terminal.print(line + "\n") }
            return
        }
        struct EnqueuedJob: Encodable {
            /// `nil` for an unchecked line.
            let id: String?
            let queue: String
        }
        Terminal.print(try ids.map { try JSONLine.text(EnqueuedJob(id: $0, queue: keys.queue)) + "\n" }.joined())
    }

    // MARK: Lines

    private func enqueueLines(
        _ check: EnqueueCheck?, _ client: RedisClient, _ keys: QueueKeys, _ access: FleetAccess
    ) async throws {
        var (enqueued, refused) = (0, 0)
        var (batch, ids, bytes): ([ByteBuffer], [String?], Int) = ([], [], 0)
        // The number of the batch's first line.
        var first = 1
        var last = PushConfirmation.Outcome.unasked
        var lines = JobLines()
        var notes = LineNotes()
        var campaigns = OpenCampaigns()
        func flush() async throws {
            guard !batch.isEmpty else { return }
            do {
                last = try await push(batch, &campaigns, client, keys)
            } catch let error as RedisError {
                try reportPart(enqueued, next: first, last: lines.number, keys, access, error)
                throw error
            }
            enqueued += batch.count
            try report(ids, keys, nil)
            (batch, ids, bytes) = ([], [], 0)
        }
        while last.shortfall == nil, let (text, number) = lines.next() {
            if batch.isEmpty { first = number }
            do throws(Mistake) {
                let accepted = try check?.prepare(text) ?? .init(job: text)
                for hint in accepted.hints { notes.found(hint, line: number) }
                batch.append(accepted.job)
                ids.append(accepted.id)
                bytes += accepted.job.readableBytes
            } catch {
                refused += 1
                notes.refused(error, line: number)
                continue
            }
            if batch.count == 1000 || bytes > 1 << 20 { try await flush() }
        }
        try await flush()
        // After a shortfall, another call enqueues the rest of the lines, so the campaigns stay open.
        if last.shortfall == nil { await campaigns.close(client, keys) }
        try notes.summarize(isJSON: json)
        let jobs = enqueued == 1 ? "1 job" : "\(enqueued) jobs"
        let others = refused > 0 ? ", refused \(refused)" : ""
        try report([], keys, "enqueued \(jobs) on \(keys.queue)\(last.inWords(enqueued == 1 ? "it" : "them"))\(others)")
        if let shortfall = last.shortfall {
            Terminal.note(
                """
                lines \(first) to \(lines.number): \(shortfall): a failover may lose their jobs; enqueueing them again may send \
                them twice; no later line was enqueued

                """)
        }
        if refused > 0 || last.shortfall != nil { throw ExitCode(1) }
    }

    /// Reports what was enqueued before an error, and where to continue.
    /// - Parameters:
    ///   - next: the number of the first line that was not enqueued, or whose push is uncertain.
    ///   - last: the number of the last line of its batch.
    private func reportPart(
        _ enqueued: Int, next: Int, last: Int, _ keys: QueueKeys, _ access: FleetAccess, _ error: RedisError
    ) throws {
        if json {
            struct Part: Encodable {
                let queue: String
                let enqueued, nextLine: Int
                let uncertainUntil: Int?
                let error: String
            }
            let part = Part(
                queue: keys.queue, enqueued: enqueued, nextLine: next, uncertainUntil: error.isAnswer ? nil : last,
                error: "\(error)")
            return print(try JSONLine.text(part, keys: .convertToSnakeCase))
        }
        let command = access.command(["enqueue"] + FleetAccess.option("--queue", keys.queue))
        Terminal.note(
            "enqueued \(Words.count(enqueued, "job")) on \(keys.queue), of the lines before line \(next). To continue: "
                + "tail -n +\(next) FILE | \(command)\n")
        if !error.isAnswer {
            Terminal.note(
                "Redis did not answer to the jobs of lines \(next) to \(last): if it has these jobs, "
                    + "repeating them would send them twice\n"
            )
        }
    }

    private func push(
        _ batch: [ByteBuffer], _ campaigns: inout OpenCampaigns, _ client: RedisClient, _ keys: QueueKeys
    ) async throws -> PushConfirmation.Outcome {
        let totals = CampaignCounts.totals(of: batch)
        await campaigns.open(totals.keys, client, keys)
        let command = JobPush.command(batch, keys, first: first)
        var outcome = PushConfirmation.Outcome.unasked
        if let confirmation = try confirmation() {
            outcome = try await confirmation.push(command, client)
        } else {
            _ = try await client.call(command, deadline: .seconds(30))
        }
        await OpenCampaigns.add(totals, client, keys)
        return outcome
    }
}

/// The campaigns of the jobs that a call enqueues. Their totals are known only after the last job was pushed. Until then they stay open, so
/// that they can't finish.
///
/// Errors are only reported: the jobs are in the queue, and would be enqueued again if the command failed.
private struct OpenCampaigns {
    private var names: Set<ByteBuffer> = []

    /// Opens campaigns, before the first of their jobs is pushed.
    mutating func open(_ campaigns: some Sequence<ByteBuffer>, _ client: RedisClient, _ keys: QueueKeys) async {
        let new = campaigns.filter { names.insert($0).inserted }
        await Self.reportingErrors {
            for name in new { try await CampaignCounts.open(String(buffer: name), client, keys) }
        }
    }

    /// Adds to the totals of campaigns, after their jobs were pushed.
    static func add(_ totals: [ByteBuffer: Int], _ client: RedisClient, _ keys: QueueKeys) async {
        await reportingErrors {
            for (name, total) in totals {
                try await CampaignCounts.addTotal(total, of: String(buffer: name), client, keys)
            }
        }
    }

    /// Closes the campaigns, after the last job was pushed.
    func close(_ client: RedisClient, _ keys: QueueKeys) async {
        await Self.reportingErrors {
            for name in names { try await CampaignCounts.close(String(buffer: name), client, keys) }
        }
    }

    private static func reportingErrors(_ body: () async throws -> Void) async {
        do {
            try await body()
        } catch {
            Terminal.note("note: the totals of campaigns were not counted: \(error)\n")
        }
    }
}
