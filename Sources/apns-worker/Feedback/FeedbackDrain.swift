import APNS
import FoundationEssentials
import LegacyAPNS
import Logging
import NIOCore
import Operations
import PushQueue
import Synchronization

/// Reads one app's feedback service to its end, writing the records to Redis and then to the other outputs.
struct FeedbackDrain: Sendable {
    /// The context shared by the drains of all apps.
    struct Context: Sendable {
        let writer: InvalidTokenClient
        let spill: FeedbackSpill
        let outputs: FeedbackOutputs
        let stop: StopSignal
        let progress: FeedbackProgress
        /// The maximum number of records per write.
        let batch: Int
        /// The maximum time for which the service may send nothing.
        let silence: TimeAmount
        /// The maximum time for which Redis may be unavailable.
        let redisPatience: TimeAmount
        let logger: Logger
    }

    private let app: FeedbackApp
    private let context: Context
    private var writing: RetryingTokenWriter
    private var report: FeedbackReport

    init(_ app: FeedbackApp, _ context: Context) {
        self.app = app
        self.context = context
        writing = RetryingTokenWriter(
            context.writer, limit: context.redisPatience, stop: context.stop, name: app.name)
        report = FeedbackReport(
            app: app.name, topic: app.topic, environment: app.environment, endpoint: "\(app.endpoint)")
    }

    /// Reads the service. Throws nothing: errors are in the report.
    mutating func run() async -> FeedbackReport {
        let began = ContinuousClock.now
        do {
            try await waitForRedis()
            try await readAll()
        } catch {
            report.error = report.error ?? "\(error)"
        }
        report.ended(after: ContinuousClock.now - began)
        log("feedback_ended", "the feedback service has been read", ["count": "\(report.records)"])
        return report
    }

    private func log(_ event: String, _ message: Logger.Message, _ metadata: Logger.Metadata) {
        context.logger.debug(
            message, metadata: metadata.merging(["event": "\(event)", "app": "\(app.name)"]) { $1 })
    }

    /// Waits until Redis is reachable and accepts writes. Must be called first, because the service forgets what it has
    /// sent.
    private mutating func waitForRedis() async throws {
        do {
            try await writing.waitUntilReady()
        } catch {
            throw NotAsked(description: "\(error); the feedback service was not read, and keeps its records")
        }
    }

    private struct NotAsked: Error, CustomStringConvertible { let description: String }

    private mutating func readAll() async throws {
        log("feedback_connecting", "connecting to the feedback service", ["endpoint": "\(app.endpoint)"])
        let session = try await FeedbackSession.connect(app.session(silence: context.silence))
        log("feedback_connected", "connected to the feedback service", ["endpoint": "\(app.endpoint)"])
        defer { session.close() }
        try await context.stop.withHandler({ session.stop() }) {
            do {
                // All records that have arrived, because a crash would lose those in memory.
                while case let tuples = try await session.next(atMost: .max), !tuples.isEmpty {
                    await take(tuples)
                    // Records on their way are still received, but no more are requested than necessary.
                    if writing.givenUp != nil { session.stop() }
                }
            } catch {
                report.incompleteBytes = try await session.incompleteBytes()
                report.withoutToken = try await session.skippedTuples()
                throw error
            }
        }
    }

    private mutating func take(_ tuples: [FeedbackTuple]) async {
        // A time in the future would outlast any registration of the device.
        let now = Int64(Date().timeIntervalSince1970 * 1000)
        let records = tuples.map { tuple in
            InvalidToken(
                token: tuple.token.hex, at: min(Int64(tuple.seconds) * 1000, now), reason: "Feedback",
                topic: ByteBuffer(string: app.topic), environment: app.environment, source: .feedback)
        }
        report.records += records.count
        context.progress.add(records.count)
        // From now on neither a crash nor a power failure loses them.
        let kept = await context.spill.keep(InvalidToken.lines(records.map { ($0, app.name) }, nil))
        if case .failed(let reason) = kept {
            report.error = "\(context.spill.path ?? "") cannot be written: \(reason); a crash would have lost records"
        }
        var refused: [InvalidToken] = []
        for batch in stride(from: 0, to: records.count, by: context.batch) {
            let records = Array(records[batch..<min(batch + context.batch, records.count)])
            let markings = await writing.write(records)
            if markings == nil { refused += records }
            for index in records.indices { report.count(markings?[index]) }
            log(
                markings == nil ? "feedback_refused" : "feedback_written",
                markings == nil ? "Redis did not accept records" : "wrote records to Redis",
                ["count": "\(records.count)"])
            guard context.outputs.isWanted else { continue }
            await context.outputs.write(
                InvalidToken.lines(records.map { ($0, app.name) }, markings), count: records.count)
        }
        if !refused.isEmpty { reportRefused(refused, kept) }
        if kept == .inFile { await context.spill.settle(isInRedis: refused.isEmpty) }
    }

    /// Reports records that Redis did not accept.
    private mutating func reportRefused(_ refused: [InvalidToken], _ kept: FeedbackSpill.Kept) {
        let reason = writing.givenUp ?? "no answer"
        let count = refused.count
        let records = "\(count == 1 ? "1 RECORD" : "\(count) RECORDS") of the app \(app.name)"
        let lost = "REDIS DID NOT ACCEPT \(records), AND THE FEEDBACK SERVICE HAS FORGOTTEN THEM (\(reason))."
        let place: String
        if kept == .inFile, let path = context.spill.path {
            place = path
            Terminal.note("\(lost) They are in \(path), and the next run writes them to Redis first.\n")
        } else {
            place = "standard error"
            let lines = InvalidToken.lines(refused.map { ($0, app.name) }, nil)
            Terminal.note("\(lost) Keep the following lines, a record each, for --from:\n\(String(buffer: lines))")
        }
        report.error = "Redis did not accept \(report.spilled) of the records, which are in \(place): \(reason)"
    }
}

extension InvalidToken {
    /// Returns records as lines of JSON.
    /// - Parameters:
    ///   - records: each with its app.
    ///   - markings: the result for each; `nil` if they are not in Redis.
    static func lines(
        _ records: [(token: InvalidToken, app: String)], _ markings: [InvalidToken.Marking]?
    ) -> ByteBuffer {
        var lines = ByteBuffer()
        for (index, record) in records.enumerated() {
            record.token.writeLine(to: &lines, app: record.app, outcome: word(markings?[index]))
        }
        return lines
    }

    private static func word(_ marking: InvalidToken.Marking?) -> String {
        switch marking {
        case .added: "added"
        case .known: "known"
        case .registeredSince: "registered_since"
        case nil: "not_written"
        }
    }
}

/// The outputs for records besides Redis.
struct FeedbackOutputs: Sendable {
    /// Standard output, for `--list`.
    let list: LineOutput?
    /// The command of `--exec`.
    let command: ExecCommand?

    /// True if there is any output.
    var isWanted: Bool { list != nil || command != nil }

    /// Writes records to all outputs; a slow one does not delay the others.
    func write(_ lines: ByteBuffer, count: Int) async {
        async let listed: Void? = list?.write(lines, count: count)
        async let handed: Void? = command?.write(lines, count: count)
        _ = await (listed, handed)
    }
}

/// The number of records read so far, for all apps.
final class FeedbackProgress: Sendable {
    private let count = Atomic(0)

    var records: Int { count.load(ordering: .relaxed) }

    func add(_ records: Int) { count.add(records, ordering: .relaxed) }
}
