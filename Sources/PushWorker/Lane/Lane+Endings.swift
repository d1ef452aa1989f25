import APNS
import Logging
import NIOCore
import PushJob
import PushQueue

/// Who wants to know how notifications end. Mostly nobody does, and then nothing is made for it.
struct Endings {
    /// A line for each, at the level debug.
    let areLogged: Bool
    /// Which go to the results of one queue or the other.
    private let results: ResultsKept

    init(_ logger: Logger, _ queues: [QueueConfiguration]) {
        areLogged = logger.logLevel <= .debug
        let kept = queues.map(\.limits.results)
        results = kept.contains(.all) ? .all : kept.contains(.failures) ? .failures : .off
    }

    /// Whether anybody may want to know of one: the question that is asked for each notification.
    func includes(_ outcome: NotificationResult.Outcome) -> Bool { areLogged || results.includes(outcome) }

    /// Whether anybody wants to know of one of this queue.
    func includes(_ outcome: NotificationResult.Outcome, of queue: QueueLane) -> Bool {
        areLogged || queue.limits.results.includes(outcome)
    }
}

/// Telling producers, and whoever reads the log at the level debug, what became of notifications.
extension Lane {
    /// A job with more tokens that ends before it is split is told of as one.
    private static let maximumResultsOfJob = 1000

    /// A notification has ended.
    /// - Parameters:
    ///   - recipient: its device token or its channel.
    ///   - cause: what the last attempt failed of, where that is not the reason itself.
    ///   - wasSent: whether it was sent in this attempt.
    func tell(
        _ outcome: NotificationResult.Outcome, reason: String? = nil, cause: String? = nil, status: Int? = nil,
        to recipient: @autoclosure () -> ByteBuffer?, of index: Int, wasSent: Bool
    ) {
        guard endings.includes(outcome) else { return }
        let queue = queues[jobs[index].queue]
        guard endings.includes(outcome, of: queue), let job = jobs[index].job else { return }
        let app = apps[jobs[index].app].configuration
        var result = NotificationResult(
            outcome, reason: reason, attempt: job.envelope.attempt - (wasSent ? 0 : 1))
        result.id = job.id.map(job.text)
        result.token = recipient()
        result.status = status
        result.app = app.name
        result.trace = job.trace
        if wasSent, !app.usesGateway, let token = result.token {
            let id = job.tokens == nil ? job.apnsID.flatMap { APNSID(job.text($0).readableBytesView) } : nil
            let identity = identity(
                of: job, claim: jobs[index].claim, in: queue, generation: jobs[index].generation)
            result.apnsID = (id ?? APNSID(jobID: identity, token: token)).description
        }
        if queue.limits.results.includes(outcome) { tally(of: index).results.append(result) }
        if endings.areLogged {
            log("notification \(outcome.rawValue)", result, queue, more: cause.map { ["cause": "\($0)"] } ?? [:])
        }
    }

    /// A notification is to be tried again; only the log is told.
    /// - Parameter what: `retried`, with an attempt spent, or `parked`, with none.
    func tellPutOff(
        _ what: StaticString, reason: String, status: Int?, to recipient: @autoclosure () -> ByteBuffer?, of index: Int,
        delay: Int64
    ) {
        guard endings.areLogged, let job = jobs[index].job else { return }
        var result = NotificationResult(.dropped, reason: reason, attempt: job.envelope.attempt)
        result.id = job.id.map(job.text)
        result.token = recipient()
        result.status = status
        result.app = apps[jobs[index].app].configuration.name
        result.trace = job.trace
        log(
            "notification \(what)", result, queues[jobs[index].queue],
            more: ["outcome": "\(what)", "retry_in_ms": "\(delay)"])
    }

    /// The results of a job that ends before any of it is sent.
    /// - Parameters:
    ///   - job: `nil` for a body that is none.
    ///   - isCertain: `false` for one that may not end like this after all; the log is not told then.
    func resultsOfUnsent(
        _ job: Job?, _ envelope: Envelope, _ outcome: NotificationResult.Outcome, reason: String, in queue: QueueLane,
        isCertain: Bool = true
    ) -> PackedResults {
        var results = PackedResults()
        guard endings.includes(outcome, of: queue) else { return results }
        var result = NotificationResult(outcome, reason: reason, attempt: envelope.attempt - 1)
        result.id = job.flatMap { job in job.id.map(job.text) }
        result.app = job.flatMap(appName)
        result.trace = job?.trace
        func add() {
            if queue.limits.results.includes(outcome) { results.append(result) }
            if endings.areLogged, isCertain { log("notification \(outcome.rawValue)", result, queue) }
        }
        if let job, let tokens = job.tokens, tokens.count <= Self.maximumResultsOfJob {
            for token in tokens {
                result.token = Self.plain(job.text(token))
                add()
            }
        } else {
            result.token = job.flatMap(Self.recipient)
            add()
        }
        return results
    }

    /// Why a job ended without being sent whose id another job has.
    static let duplicate = "Duplicate"

    /// A job turned out to be one; Redis has told the producers.
    func tellOfDuplicate(_ body: ByteBuffer, in queue: QueueLane) {
        guard endings.areLogged else { return }
        do throws(JobError) {
            let job = try JobDecoder.decode(body)
            _ = resultsOfUnsent(job, job.envelope, .dropped, reason: Self.duplicate, in: queue)
        } catch {
            // It was read when it was claimed.
            logger.debug("a duplicate cannot be read: \(error)", metadata: ["queue": "\(queue.keys.queue)"])
        }
    }

    /// The app that a job goes through, or the one that it names where there is none.
    func appName(of job: Job) -> String? {
        do throws(Unsendable) {
            return apps[try router.route(job)].configuration.name
        } catch {
            return job.app.map { String(buffer: job.text($0)) }
        }
    }

    private func log(
        _ message: String, _ result: NotificationResult, _ queue: QueueLane, more: Logger.Metadata = [:]
    ) {
        var metadata: Logger.Metadata = ["queue": "\(queue.keys.queue)", "attempt": "\(result.attempt)"]
        metadata["outcome"] = "\(result.outcome.rawValue)"
        if let app = result.app { metadata["app"] = "\(app)" }
        if let reason = result.reason { metadata["reason"] = "\(reason)" }
        if let status = result.status { metadata["status"] = "\(status)" }
        if let apnsID = result.apnsID { metadata["apns_id"] = "\(apnsID)" }
        metadata.merge(Self.logMetadata(id: result.id, token: result.token, trace: result.trace)) { $1 }
        metadata.merge(more) { $1 }
        logger.debug("\(message)", metadata: metadata)
    }

    /// What a line about one job says of it.
    static func logMetadata(id: ByteBuffer?, token: ByteBuffer?, trace: TraceParent?) -> Logger.Metadata {
        var metadata: Logger.Metadata = [:]
        if let id { metadata["job"] = "\(String(buffer: id))" }
        if let token { metadata["token"] = "\(shortened(token))" }
        if let trace {
            metadata["trace_id"] = "\(trace.traceID)"
            metadata["parent_id"] = "\(trace.parentID)"
        }
        return metadata
    }

    /// Enough of a token to find it by, and too little to send to.
    static func shortened(_ token: ByteBuffer) -> String {
        let length = min(8, token.readableBytes / 2)
        return "\(String(decoding: token.readableBytesView.prefix(length), as: UTF8.self))…"
    }

    /// A token as it is sent, or as it came where it is none.
    static func plain(_ text: ByteBuffer) -> ByteBuffer {
        do throws(DeviceToken.Invalid) { return try DeviceToken(text).hex } catch { return text }
    }

    /// The device or the channel of a job that has only one.
    static func recipient(of job: Job) -> ByteBuffer? {
        if let channel = job.channel { return job.text(channel) }
        return job.token.map { plain(job.text($0)) }
    }

    // MARK: Dead letters

    /// A notification of a job can never be delivered.
    /// - Parameters:
    ///   - cause: what the last attempt failed of, where that is not the reason itself.
    ///   - wasSent: whether it was sent in this attempt.
    func die(
        _ token: ByteBuffer, of index: Int, reason: String, cause: String? = nil, status: Int?, wasSent: Bool
    ) {
        counters.dead += 1
        count(.dead, of: index, reason: reason)
        tell(.dead, reason: reason, cause: cause, status: status, to: token, of: index, wasSent: wasSent)
        tally(of: index).add(dead: token, reason: reason, error: cause, status: status)
        tellOfDeadLetters(
            1, reason: reason, detail: cause, jobs[index].job, token: token,
            app: apps[jobs[index].app].configuration.name, queues[jobs[index].queue])
    }

    /// A line for the first of each reason, and then one a minute at the most: a million bad jobs are not a million lines.
    func tellOfDeadLetters(
        _ count: Int, reason: String, detail: String?, _ job: Job?, token: ByteBuffer?, app: String?, _ queue: QueueLane
    ) {
        let name = queue.keys.queue
        troubles.occurred(
            "dead \(name) \(app ?? "") \(reason)", count: count, .warning, "kept as a dead letter", logger,
            metadata: [
                "reason": "\(reason)", "queue": "\(name)",
            ].merging(app.map { ["app": "\($0)"] } ?? [:]) { $1 },
            example: Self.logMetadata(id: job.flatMap { job in job.id.map(job.text) }, token: token, trace: job?.trace)
                .merging(detail.map { ["detail": "\($0)"] } ?? [:]) { $1 })
    }
}
