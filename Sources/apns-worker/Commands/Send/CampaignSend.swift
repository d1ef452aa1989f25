import ArgumentParser
import FoundationEssentials
import Glibc
import NIOCore
import Operations
import PrintableText
import PushJob
import PushQueue
import PushWorker
import Redis
import TokenLists

struct CampaignSend: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "send", abstract: "Send a job to a list of device tokens.",
        discussion: """
            The job is a JSON object without tokens and ID, such as {"alert":"Hello"}. The command makes jobs of up to 1000 \
            tokens with the IDs NAME-000001, NAME-000002, …, and enqueues them in the order of the list. A repeated token is \
            sent to once.

              apns-worker campaign send spring-sale --job job.json --tokens tokens.txt
              apns-worker campaign send spring-sale --job job.json --tokens devices.csv.gz --column token
              psql -c 'COPY (SELECT token FROM devices ORDER BY id) TO STDOUT' |
                apns-worker campaign send spring-sale --job job.json --tokens -

            The list is read completely before the first job is enqueued. It needs about 75 bytes per token: in temporary files in \
            TMPDIR (default: /var/tmp) or, if that cannot be written, in memory. Lines that are not device tokens are reported \
            with their numbers and skipped; the exit status is then 1.

            The position in the list is kept in Redis, and moves in the same step in which jobs are enqueued. After Ctrl-C, a \
            crash or an error, repeat the command with the same job and the same tokens: it continues, and sends nothing \
            twice. A campaign that was sent to its end is not sent again under the same name.

            With --stop-if, workers pause the campaign as soon as too much of it fails, as with `campaign guard`; the command \
            then ends with status 1. With --canary, the jobs of a share of the devices are enqueued first, chosen by the hashes of \
            their tokens. The command waits until all of these notifications have ended, but no longer than --wait, unless \
            fewer have ended than the guard needs (--min). To continue after a pause, use `campaign resume`, and repeat the command.

              apns-worker campaign send spring-sale --job job.json --tokens tokens.txt --canary 1% \
                --stop-if 'invalid_token>5%,dead>1%'
            """)

    @Argument(help: "Name of the campaign.") var campaign: String

    @Option(help: ArgumentHelp("File with the job, a JSON object without tokens.", valueName: "file"))
    var job: String

    @Option(
        help: ArgumentHelp(
            "List of tokens in hex or base64, one per line: a file, an http or https URL, or - for standard input. It can "
                + "be compressed with gzip.", valueName: "file"))
    var tokens: String

    @Option(help: ArgumentHelp("Column with the tokens, if the list is CSV with a header.", valueName: "name"))
    var column: String?

    @Option(help: ArgumentHelp("Member with the token, if the lines are JSON objects.", valueName: "name"))
    var member: String?

    @Option(help: "Time to send the jobs: ISO 8601, or seconds since 1970. (default: at once)") var at: String?

    @Option(help: "Maximum number of notifications per second: the limit of the campaign. (default: unlimited)")
    var rate: Int?

    @Option(
        help:
            "Maximum number of jobs that wait in the queue, or that have unfinished notifications of the campaign. The command waits until there are fewer. (default: 100)"
    ) var ahead: Int?

    @Option(help: "Maximum number of tokens in a job. (default: 1000)") var jobSize: Int?

    @Option(help: "Shares above which the campaign is paused, such as 'invalid_token>5%,dead>1%'.")
    var stopIf: String?

    @Option(help: "Number of notifications below which the campaign is not paused. (default: 1000)") var min: Int?

    @Option(help: "Share of the devices to send to first, such as 1%; requires --stop-if.") var canary: String?

    @Option(
        help:
            "Maximum wait for the outcomes of the canary after it was enqueued, unless fewer than --min have ended. (default: 2m)"
    ) var wait: String?

    @Flag(help: "Send nothing if the job has likely mistakes, or a line is not a whole token.") var strict = false

    @Flag(help: "Read the list and check the job, and print the number of jobs without enqueueing them.")
    var dryRun = false

    @Flag(help: "Print the result as a JSON object.") var json = false

    @OptionGroup(title: "Queue") var queue: QueueOptions

    /// The maximum number of lines without a token that are reported.
    private static let shownRefusals = 10

    private var size: Int { jobSize ?? 1000 }

    func validate() throws {
        guard JobLabels.isCampaign(campaign) else {
            throw ValidationError("the name of a campaign has 1 to 100 bytes, and no control characters")
        }
        if column != nil, member != nil { throw ValidationError("pass --column or --member, not both") }
        guard (1...10_000).contains(size) else { throw ValidationError("--job-size must be 1 to 10000") }
        guard (1...1_000_000).contains(ahead ?? 1) else { throw ValidationError("--ahead must be 1 to 1000000") }
        _ = try rateLimit(0)
        _ = try sendAt()
        _ = try campaignGuard()
        _ = try share()
        _ = try waitMs()
        if stopIf == nil, min != nil { throw ValidationError("--min needs --stop-if, such as invalid_token>5%") }
        if canary == nil, wait != nil { throw ValidationError("--wait needs --canary, such as 1%") }
        if canary != nil {
            if stopIf == nil { throw ValidationError("--canary needs --stop-if, such as invalid_token>5%") }
            if at != nil { throw ValidationError(Self.scheduledCanary) }
        }
        if tokens == "-", isatty(STDIN_FILENO) == 1 {
            throw ValidationError("write tokens to standard input, one per line, or pass a file with --tokens")
        }
    }

    private static let scheduledCanary =
        "--canary and a time to send cannot be combined: the command must wait for the canary's outcomes"

    private func campaignGuard() throws -> CampaignGuard? {
        var fields = Fields(refusesEmpty: true)
        fields.append("stop_if", stopIf)
        fields.append("min", min.map { "\($0)" })
        return try readingFlags { () throws(FieldMistake) in try CampaignGuard(fields, reasons: Reason.Code.names) }
    }

    /// Returns the devices of the canary, which differ between campaigns.
    private func share() throws -> TokenShare? {
        guard let canary else { return nil }
        guard canary.hasSuffix("%"), let percent = Double(canary.dropLast()), percent > 0, percent < 100 else {
            throw ValidationError("--canary must be a share above 0% and below 100%, such as 1% or 0.5%")
        }
        return TokenShare(percent: percent, name: campaign)
    }

    private func waitMs() throws -> Int {
        try wait.map { try DurationText.option($0, "--wait", 1...86_400) } ?? 120_000
    }

    private func sendAt() throws -> Int64? {
        guard let at else { return nil }
        guard let time = JobTime.milliseconds(at) else {
            // A duration would be another time when the command is repeated.
            throw ValidationError(
                "--at must be seconds since 1970, or an ISO 8601 time with Z or an offset, such as 2030-01-31T12:00:00Z"
            )
        }
        return time
    }

    /// Returns the change that limits the campaign's rate, if there is a limit.
    private func rateLimit(_ now: Int64) throws -> CampaignChange? {
        guard let rate else { return nil }
        let fields = Fields([("campaign", campaign), ("per_second", "\(rate)")])
        do {
            return try CampaignChange(.limit(perSecond: nil), fields, now: now)
        } catch {
            throw ValidationError("--rate must be a number of notifications per second, at least 1")
        }
    }

    func run() async throws {
        // Mistakes are reported before any wait for Redis.
        let settings = try queue.settings()
        let configuration = try queue.ofJobs(settings)
        let text = try jobText()
        let template: JobTemplate
        do {
            let time = try sendAt()
            // A repeated command has the same time, which may have passed since.
            if let time, time < Moment.now {
                Terminal.note("the time of --at has passed: the jobs are sent at once\n")
            }
            template = try JobTemplate(text, campaign: campaign, sendAt: time)
        } catch let mistake as Mistake {
            throw ValidationError("--job \(job): \(mistake)")
        }
        if canary != nil, template.isScheduled { throw ValidationError(Self.scheduledCanary) }
        if template.isScheduled, template.replaces {
            throw ValidationError("a campaign with `replaces` can't have a time to send: send it when it is time")
        }
        _ = try check(template, configuration.format, apps: nil, configuration.keys)
        let input = try await input()
        let refused = try await FleetOptions.withFleet(settings, searches: false) { fleet in
            let source = try await fleet.queue(configuration.keys)
            // Redis does not have the classes of Sidekiq's jobs. Only the settings have them.
            let format = source.format == configuration.format.withoutClasses ? configuration.format : source.format
            let state = try await QueueState.read(
                fleet.client(for: source.keys.jobs), source.keys, configured: (try? settings.appNames) ?? [])
            state.warn()
            for hint in try check(template, format, apps: state.apps, source.keys) {
                Terminal.note("note: \(hint.detail)\n")
            }
            var parts = [
                text, ByteBuffer(string: at ?? ""), ByteBuffer(string: "\(size)"), ByteBuffer(string: "\(format)"),
            ]
            if let canary { parts.append(ByteBuffer(string: canary)) }
            let jobs = try ListedJobs(
                template, try list(input), jobDigest: ListedJobs.digest(parts), size: size, canary: share(), format,
                queue: source.keys.queue)
            let (stop, waitTime) = (try campaignGuard(), try waitMs())
            let desk = try Desk(fleet, [source.keys], settings)
            let limit = try rateLimit(await fleet.now(of: [source.keys]))
            let change = try readingFlags { () throws(FieldMistake) in
                try SendCampaign(
                    ListedCampaign(campaign, jobs, ahead: ahead ?? 100, guard: stop, wait: waitTime), limit: limit)
            }
            try await ChangeCommand(isJSON: json, isDryRun: dryRun).run(change, desk)
            return jobs.refused
        }
        if refused > 0 { throw ExitCode(ExitStatus.attention.rawValue) }
    }

    private func jobText() throws -> ByteBuffer {
        do {
            return ByteBuffer(bytes: try Data(contentsOf: URL(filePath: job)))
        } catch {
            throw ValidationError("--job \(job) cannot be read: \(String(cString: strerror(errno)))")
        }
    }

    /// Checks the job as `enqueue` does, with an example token.
    private func check(
        _ template: JobTemplate, _ format: JobFormat, apps: Set<String>?, _ keys: QueueKeys
    ) throws -> [Hint] {
        let now = Moment.now
        let example = template.example(now: now)
        let body = ListedJobs.wrapped(example, format, queue: keys.queue, now: now)
        do throws(Mistake) {
            return try EnqueueCheck(format: format, apps: apps, isStrict: strict).prepare(body).hints
        } catch {
            throw ValidationError("--job \(job): \(error)")
        }
    }

    // MARK: The list

    private static var directory: String {
        let given = ProcessInfo.processInfo.environment["TMPDIR"] ?? ""
        return given.isEmpty ? "/var/tmp" : given
    }

    /// A download fails after this time without a byte.
    private static let downloadSilence = TimeAmount.seconds(60)

    /// Opens the list, and downloads it if it is at a URL.
    private func input() async throws -> Int32 {
        guard tokens.hasPrefix("http://") || tokens.hasPrefix("https://") else {
            do {
                return try LineReader.open(tokens)
            } catch {
                throw ValidationError("--tokens \(error)")
            }
        }
        let address: HTTPAddress
        do {
            address = try HTTPAddress(tokens)
        } catch {
            throw ValidationError("--tokens is not a usable URL: \(error)")
        }
        do {
            let descriptor = try ScratchFile.open(in: Self.directory)
            try await HTTPExchange(address: address, tls: address.usesTLS ? HTTPExchange.tls() : nil).send(
                .GET, headers: ["Accept-Encoding": "identity"], within: Self.downloadSilence, to: descriptor)
            lseek(descriptor, 0, SEEK_SET)
            return descriptor
        } catch let failure as TokenListFailure {
            throw CommandFailure(.attention, "the list of tokens: \(failure)")
        } catch let failure as HTTPExchange.Failure {
            throw CommandFailure(.attention, "the server of the list of tokens, \(address): \(failure)")
        }
    }

    private func list(_ descriptor: Int32) throws -> sending ListedTokens {
        let format: TokenListFormat = column.map { .column($0) } ?? member.map { .member($0) } ?? .lines
        var refused = 0
        let list: ListedTokens
        do {
            list = try ListedTokens(
                ListInput(descriptor: descriptor, closes: descriptor != STDIN_FILENO), format, in: Self.directory
            ) { refusal in
                refused += 1
                if refused <= Self.shownRefusals { Terminal.note("line \(refusal.line): \(refusal.problem)\n") }
            }
        } catch let failure as TokenListFailure {
            throw CommandFailure(.attention, "the list of tokens: \(failure); nothing was enqueued")
        }
        if refused > Self.shownRefusals {
            Terminal.note("\(Words.number(refused - Self.shownRefusals)) more lines have no device token\n")
        }
        guard list.tokens.count > 0 else {
            let advice = format == .lines ? "; pass --column for CSV, or --member for JSON lines" : ""
            throw CommandFailure(.attention, "the list has no device token\(advice)")
        }
        if strict, refused > 0 {
            throw CommandFailure(
                .attention, "\(Words.count(refused, "line")) of the list have no device token; nothing was enqueued")
        }
        if list.short.count > 0 {
            let what = "\(Words.count(list.short.count, "token")) of the list, the first in line \(list.short.line)"
            let problem = "\(what), have fewer than the 64 digits of Apple's tokens; is it the right column?"
            if strict { throw CommandFailure(.attention, "\(problem) Nothing was enqueued") }
            Terminal.note(problem + "\n")
        }
        if list.tokens.repeated > 0 {
            Terminal.note(
                "dropped \(Words.count(list.tokens.repeated, "repeated token")) of \(Words.number(list.tokens.added))\n"
            )
        }
        return list
    }
}
