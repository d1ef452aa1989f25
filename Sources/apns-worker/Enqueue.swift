import ArgumentParser
import FoundationEssentials
import Glibc
import NIOCore
import PushJob
import PushQueue
import PushWorker
import Redis

struct Enqueue: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Enqueue jobs: one by flags, or many as NDJSON on standard input.",
        discussion: """
            One job:    apns-worker enqueue --token 00fc13ad… --alert 'Hello'
                        apns-worker enqueue --token 00fc13ad… --title 'Hello' --body 'World' --badge 1 --sound default
            Many jobs:  apns-worker enqueue < jobs.ndjson     (one JSON object per line)

            Lines that no worker could send, such as invalid JSON, a malformed device token or a payload that is too large, are \
            reported with their numbers and not enqueued. All other lines are, and the exit status is 1. With --unchecked all \
            lines are enqueued unchanged.

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
    @Flag(help: "Let a device that receives the notification twice show it once.") var collapseDuplicates = false
    @Option(help: "Maximum attempts.") var maxAttempts: Int?
    @Option(help: "W3C trace context of the job: 00-<trace id>-<parent id>-01.")
    var traceparent: String?
    @Flag(help: "Put the job at the head of the queue.") var first = false
    @Flag(help: "Enqueue jobs without checking them.") var unchecked = false

    @Option(
        help: "Number of replicas that must confirm the jobs. Uses WAIT; the Redis user needs +wait. (default: none)")
    var replicas: Int?
    @Option(help: "Maximum time to wait for the replicas of each batch of up to 1000 jobs. (default: 5s)")
    var replicasTimeout: String?

    @OptionGroup(title: "Short forms, instead of a payload") var shortForms: ShortFormOptions

    func validate() throws {
        guard let replicas else {
            if replicasTimeout != nil { throw ValidationError("--replicas-timeout is for --replicas") }
            return
        }
        guard (1...1000).contains(replicas) else { throw ValidationError("--replicas must be from 1 to 1000") }
        // To Redis, 0 is for ever.
        guard let replicasTimeout else { return }
        guard let seconds = JobDuration.seconds(replicasTimeout), (1...3600).contains(seconds) else {
            throw ValidationError("--replicas-timeout must be a duration from 1s to 1h, such as 5s or 1m")
        }
    }

    /// The confirmation that a push waits for; `nil` for only the master's answer.
    private var confirmation: PushConfirmation? {
        replicas.map { .init(replicas: $0, seconds: replicasTimeout.flatMap(JobDuration.seconds) ?? 5) }
    }

    func run() async throws {
        // A mistake in the flags shows at once, and not after a wait for Redis.
        let settings = try queue.settings()
        let configuration = try queue.only(settings)
        let (keys, format) = (configuration.keys, configuration.format)
        let now = Int64(Date().timeIntervalSince1970 * 1000)
        let job: ByteBuffer? =
            switch format {
            case .native: try jobOfFlags(enqueuedAt: now)
            // The time is the wrapper's to tell.
            case .sidekiq(let classes):
                try jobOfFlags(enqueuedAt: nil).map {
                    SidekiqWrapper(queue: keys.queue, className: classes.first ?? "PushJob").wrap(
                        $0, at: now)
                }
            }
        if !unchecked, let job, let defect = JobCheck.defect(of: job, as: format) { throw ValidationError(defect) }
        try await settings.withClient(for: keys.jobs) { client in
            if let job {
                let pushed = try await push([job], client, keys)
                guard let shortfall = pushed.shortfall else {
                    return print("enqueued 1 job on \(keys.queue)\(pushed.inWords("it"))")
                }
                Terminal.tell(
                    """
                    enqueued 1 job on \(keys.queue), but \(shortfall): a failover may lose it; enqueueing it again may \
                    send it twice

                    """)
                throw ExitCode(1)
            } else {
                try await enqueueLines(client, keys, format)
            }
        }
    }

    /// The job that the flags describe; `nil` where jobs come from standard input.
    /// - Parameter enqueuedAt: in milliseconds since 1970, to be written into it.
    private func jobOfFlags(enqueuedAt: Int64?) throws -> ByteBuffer? {
        let members = try shortForms.members()
        guard !token.isEmpty || channel != nil || payload != nil || !members.isEmpty else {
            if isatty(STDIN_FILENO) == 1 {
                throw ValidationError(
                    "give --token and --alert or --payload, or jobs as lines of JSON on standard input")
            }
            return nil
        }
        do {
            return try makeJob(members, enqueuedAt: enqueuedAt)
        } catch {
            throw ValidationError("\(error)")
        }
    }

    private func makeJob(_ members: [JobMember: JobEncoder.ShortForm], enqueuedAt: Int64?) throws -> ByteBuffer {
        guard token.isEmpty != (channel == nil) else {
            throw ValidationError("a job needs --token" + (channel == nil ? "" : " or --channel, and not both"))
        }
        guard members.isEmpty != (payload == nil) else {
            throw ValidationError("a job needs either --payload or --alert, or other flags that a payload is made of")
        }
        var encoder = JobEncoder(tokens: token, payload: payload.map { ByteBuffer(string: $0) })
        encoder.shortForms = members
        encoder.channel = channel
        encoder.truncates = truncate
        encoder.collapsesDuplicates = collapseDuplicates
        encoder.id = id
        encoder.enqueuedAt = enqueuedAt
        encoder.app = app
        encoder.topic = topic
        encoder.pushType = pushType
        encoder.priority = priority
        encoder.collapseID = collapseID
        encoder.maxAttempts = maxAttempts
        if let expiration {
            guard let parsed = Expiration(expiration) else {
                throw ValidationError(
                    "--expiration must be 0, seconds since 1970, an ISO 8601 time, or a duration such as 45s, 30m, 1h30m or 7d"
                )
            }
            encoder.expiration = parsed
        }
        if let uniqueFor {
            guard let seconds = JobDuration.seconds(uniqueFor), JobDuration.uniqueFor.contains(seconds) else {
                throw ValidationError("--unique-for is a duration from 1s to 30d, such as 45s, 30m, 1h30m or 7d")
            }
            guard id != nil else { throw ValidationError("--unique-for needs --id") }
            encoder.uniqueFor = seconds
        }
        if let traceparent {
            guard TraceParent(ByteBuffer(string: traceparent)) != nil else {
                throw ValidationError(
                    "--traceparent must be \(JobMember.traceparent.expectation)")
            }
            encoder.traceparent = traceparent
        }
        return try encoder.encode()
    }

    private func enqueueLines(_ client: RedisClient, _ keys: QueueKeys, _ format: JobFormat) async throws {
        var (number, enqueued, refused) = (0, 0, 0)
        var batch: [ByteBuffer] = []
        var bytes = 0
        // The line that the batch begins with.
        var first = 1
        var last = PushConfirmation.Outcome.unasked
        let lines = LineReader()
        while last.shortfall == nil, let line = lines.next({ ByteBuffer(bytes: $0) }) {
            number += 1
            if batch.isEmpty { first = number }
            guard line.readableBytes > 0 else { continue }
            if !unchecked, let defect = JobCheck.defect(of: line, as: format) {
                refused += 1
                Terminal.tell("line \(number): \(defect)\n")
                continue
            }
            batch.append(line)
            bytes += line.readableBytes
            if batch.count == 1000 || bytes > 1 << 20 {
                last = try await push(batch, client, keys)
                enqueued += batch.count
                (batch, bytes) = ([], 0)
            }
        }
        if !batch.isEmpty { last = try await push(batch, client, keys) }
        enqueued += batch.count
        let jobs = enqueued == 1 ? "1 job" : "\(enqueued) jobs"
        let others = refused > 0 ? ", refused \(refused)" : ""
        print("enqueued \(jobs) on \(keys.queue)\(last.inWords(enqueued == 1 ? "it" : "them"))\(others)")
        if let shortfall = last.shortfall {
            Terminal.tell(
                """
                lines \(first) to \(number): \(shortfall): a failover may lose their jobs; enqueueing them again may send \
                them twice; no later line was enqueued

                """)
        }
        if refused > 0 || last.shortfall != nil { throw ExitCode(1) }
    }

    private func push(
        _ batch: [ByteBuffer], _ client: RedisClient, _ keys: QueueKeys
    ) async throws -> PushConfirmation.Outcome {
        let atLeft = first == (keys.head == .left)
        var command = RedisCommand(
            atLeft ? "LPUSH" : "RPUSH", expecting: batch.count + 1, bytes: batch.reduce(100) { $0 + $1.readableBytes })
        command.append(keys.jobs)
        // What is pushed last at the head comes out first.
        for job in first ? batch.reversed() : batch { command.append(job) }
        if let confirmation { return try await confirmation.push(command, client) }
        _ = try await client.call(command, deadline: .seconds(30))
        return .unasked
    }
}

/// Writes a job as Sidekiq's client would.
struct SidekiqWrapper {
    let queue: String
    let className: String

    /// - Parameters:
    ///   - job: a JSON object; it goes into the arguments byte for byte.
    ///   - now: in milliseconds since 1970.
    func wrap(_ job: ByteBuffer, at now: Int64) -> ByteBuffer {
        // 24 hex digits, as `SecureRandom.hex(12)` gives them.
        let id = (0..<12).map { _ in
            let byte = UInt8.random(in: 0...255)
            return String(byte >> 4, radix: 16) + String(byte & 15, radix: 16)
        }.joined()
        let time = "\(now / 1000).\(String(now % 1000 + 1000).dropFirst())"
        var text = ByteBuffer(string: #"{"class":"#)
        text.writeJSONString(className)
        text.writeString(#","queue":"#)
        text.writeJSONString(queue)
        text.writeString(#","args":["#)
        text.writeImmutableBuffer(job)
        text.writeString(#"],"retry":true,"jid":"\#(id)","created_at":\#(time),"enqueued_at":\#(time)}"#)
        return text
    }
}
