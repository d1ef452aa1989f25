import Logging
import NIOCore
import PushJob
import PushQueue

/// Writes the log lines about notifications: at the level debug one line for each, otherwise rare lines about dead and cancelled ones.
struct NotificationLog {
    private let lane: LaneContext
    private let queue: QueueContext
    private(set) var logsEach: Bool

    init(_ lane: LaneContext, _ queue: QueueContext) {
        (self.lane, self.queue) = (lane, queue)
        logsEach = lane.logger.logLevel <= .debug
    }

    /// Reads the log level, which may change at any time.
    mutating func refresh() { logsEach = lane.logger.logLevel <= .debug }

    /// Logs the end of a notification, or its postponement.
    func write(
        _ result: NotificationResult, outcome: String? = nil, more: Logger.Metadata = [:]
    ) {
        let outcome = outcome ?? result.outcome.rawValue
        var metadata: Logger.Metadata = [
            "event": "notification_\(outcome)", "queue": "\(queue.name)", "attempt": "\(result.attempt)",
            "outcome": "\(outcome)",
        ]
        if let app = result.app { metadata["app"] = "\(app)" }
        if let reason = result.reason { metadata["reason"] = "\(reason)" }
        if let status = result.status { metadata["status"] = "\(status)" }
        if let apnsID = result.apnsID { metadata["apns_id"] = "\(apnsID)" }
        if let uniqueID = result.apnsUniqueID { metadata["apns_unique_id"] = "\(uniqueID)" }
        if let campaign = result.campaign { metadata["campaign"] = "\(String(buffer: campaign))" }
        if let labels = result.labels { metadata["labels"] = "\(String(buffer: labels))" }
        metadata.merge(Self.metadata(id: result.id, token: result.token, trace: result.trace)) { $1 }
        metadata.merge(more) { $1 }
        lane.logger.debug("notification \(outcome)", metadata: metadata)
    }

    /// Logs the first dead letter of each reason, and then at most one line per minute, so that a million bad jobs do
    /// not produce a million lines.
    func writeDeadLetters(
        _ count: Int, _ reason: Reason, cause: Reason?, _ job: Job?, token: ByteBuffer?, app: String?
    ) {
        let code = reason.code.text
        let detail = cause?.code.text ?? reason.detail
        lane.logThrottled(
            .warning, "dead_letter", "moved jobs to dead letters", kind: "dead \(queue.name) \(app ?? "") \(code)",
            count: count,
            metadata: ["reason": "\(code)", "queue": "\(queue.name)"].merging(app.map { ["app": "\($0)"] } ?? [:]) {
                $1
            },
            example: Self.metadata(id: job.flatMap { job in job.id.map(job.text) }, token: token, trace: job?.trace)
                .merging(detail.map { ["detail": "\($0)"] } ?? [:]) { $1 })
    }

    /// Logs the first cancelled notification of each command, and then at most one line per minute.
    func writeCancelled(_ count: Int, _ target: JobCommands.Target) {
        lane.logThrottled(
            .notice, "cancelled", "dropped notifications that an operator cancelled: \(target)",
            kind: "cancelled \(queue.name) \(target)", count: count, metadata: ["queue": "\(queue.name)"])
    }

    /// Returns the fields of a log line about one job.
    private static func metadata(id: ByteBuffer?, token: ByteBuffer?, trace: TraceParent?) -> Logger.Metadata {
        var metadata: Logger.Metadata = [:]
        if let id { metadata["job"] = "\(String(buffer: id))" }
        if let token { metadata["token"] = "\(shortened(token))" }
        if let trace {
            metadata["trace_id"] = "\(trace.traceID)"
            metadata["parent_id"] = "\(trace.parentID)"
        }
        return metadata
    }

    /// Returns the beginning of a token: enough to identify the device, but too little to send to it.
    private static func shortened(_ token: ByteBuffer) -> String {
        let length = min(8, token.readableBytes / 2)
        return "\(String(decoding: token.readableBytesView.prefix(length), as: UTF8.self))…"
    }
}

extension NotificationResult {
    init(
        _ outcome: Outcome, _ reason: Reason?, status: Int? = nil, of job: Job?, app: String?, attempt: Int,
        to recipient: ByteBuffer? = nil
    ) {
        self.init(outcome, reason: reason?.code.text, attempt: attempt)
        id = job.flatMap { job in job.id.map(job.text) }
        token = recipient
        self.status = status
        self.app = app
        trace = job?.trace
        campaign = job.flatMap { job in job.campaign.map(job.text) }
        fair = job.flatMap { job in job.fair.map(job.text) }
        labels = job?.labelsText
    }
}
