import APNS
import FoundationEssentials
import Glibc
import LegacyAPNS
import Logging
import NIOCore
import Operations
import PushQueue

/// Reads one app's feedback service to its end, writing the records to Redis and then to the other outputs.
struct FeedbackDrain: Sendable {
    /// The context shared by the drains of all apps.
    struct Context: Sendable {
        let writer: InvalidTokenClient
        let spill: FeedbackSpill
        var outputs = FeedbackOutputs()
        let stop = StopSignal()
        var progress = FeedbackProgress()
        /// The maximum number of records per write.
        let batch: Int
        /// The maximum time without a byte from the service.
        let silence: TimeAmount
        /// The maximum time to wait for Redis.
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

    /// Waits until Redis is reachable and accepts writes. Must be called first, because the service forgets the records that it has sent.
    private mutating func waitForRedis() async throws {
        do {
            try await writing.waitUntilReady()
        } catch {
            throw Mistake("\(error); the feedback service was not read, and keeps its records")
        }
    }

    private mutating func readAll() async throws {
        log("feedback_connecting", "connecting to the feedback service", ["endpoint": "\(app.endpoint)"])
        let session = try await FeedbackSession.connect(app.dialer(), silence: context.silence)
        log("feedback_connected", "connected to the feedback service", ["endpoint": "\(app.endpoint)"])
        defer { session.close() }
        try await context.stop.withHandler({ session.stop() }) {
            do {
                // Takes all records that have arrived, because a crash would lose those in memory.
                while case let tuples = try await session.next(atMost: .max), !tuples.isEmpty {
                    await take(tuples)
                    // Records on their way are still received, but no more are requested.
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
    ///   - markings: the result for each record; `nil` if the records are not in Redis.
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

/// Writes records from lines of JSON to Redis, which did not accept them before.
struct FeedbackFile {
    /// The members of a line of `--spill` that are needed.
    private struct Record: Decodable {
        let token: String
        let at: Int64
        let app: String
        let topic: String
        let environment: String?
    }

    private let path: String
    private let context: FeedbackDrain.Context
    private var writing: RetryingTokenWriter
    private var report: FeedbackReport

    /// - Parameter path: a file, or `-` for standard input.
    init(_ path: String, _ context: FeedbackDrain.Context) {
        self.path = path
        self.context = context
        writing = RetryingTokenWriter(context.writer, limit: context.redisPatience, stop: context.stop, name: path)
        report = FeedbackReport(app: path)
    }

    mutating func run() async -> FeedbackReport {
        let began = ContinuousClock.now
        do {
            try await writing.waitUntilReady()
            try await writeAll()
        } catch {
            report.error = "\(error)"
        }
        report.ended(after: ContinuousClock.now - began)
        return report
    }

    private mutating func writeAll() async throws {
        let descriptor = try LineReader.open(path)
        let hasOpenEnd = Self.hasOpenEnd(descriptor)
        let lines = LineReader(descriptor: descriptor)
        let decoder = JSONDecoder()
        var (number, refused): (Int, [Int]) = (0, [])
        var records: [(token: InvalidToken, app: String)] = []
        var lastLine = Data()
        while let line = lines.next({ Data($0) }) {
            number += 1
            lastLine = line
            // In a file of captured standard error, other lines can be between the records.
            guard line.first == UInt8(ascii: "{") else { continue }
            guard let record = Self.token(line, decoder) else {
                refused.append(number)
                continue
            }
            records.append(record)
            if records.count == context.batch { try await write(&records, before: number) }
        }
        try await write(&records, before: number)
        if hasOpenEnd, refused.last == number, lastLine.last != UInt8(ascii: "}") {
            refused.removeLast()
            Terminal.note(
                "\(path): line \(number) is incomplete: the process ended while writing it, and the record is lost\n"
            )
        }
        guard let first = refused.first else { return }
        throw Mistake(
            "\(refused.count) lines are not records and were skipped; the first is line \(first)")
    }

    /// True for a file whose last line has no line feed.
    private static func hasOpenEnd(_ descriptor: Int32) -> Bool {
        var status = stat()
        var last: UInt8 = 0
        return fstat(descriptor, &status) == 0 && status.st_mode & S_IFMT == S_IFREG && status.st_size > 0
            && pread(descriptor, &last, 1, status.st_size - 1) == 1 && last != UInt8(ascii: "\n")
    }

    private mutating func write(_ records: inout [(token: InvalidToken, app: String)], before line: Int) async throws {
        guard !records.isEmpty else { return }
        guard !context.stop.isStopped, let markings = await writing.write(records.map(\.token)) else {
            throw Mistake(
                "\(writing.givenUp ?? "this process was asked to stop"); lines up to \(line) were written only in "
                    + "part, later lines not at all; keep the file and repeat the command")
        }
        report.records += markings.count
        for marking in markings { report.count(marking) }
        if context.outputs.isWanted {
            await context.outputs.write(InvalidToken.lines(records, markings), count: records.count)
        }
        records = []
    }

    private static func token(_ line: Data, _ decoder: JSONDecoder) -> (token: InvalidToken, app: String)? {
        do {
            let record = try decoder.decode(Record.self, from: line)
            let token = InvalidToken(
                token: try DeviceToken(record.token).hex, at: record.at, reason: "Feedback",
                topic: ByteBuffer(string: record.topic), environment: record.environment, source: .feedback)
            return (token, record.app)
        } catch {
            // The error may quote the record, so only the line number is reported.
            return nil
        }
    }
}

/// Writes records to Redis, and waits while it is unavailable.
struct RetryingTokenWriter: Sendable {
    /// The time to wait for Redis after the process was asked to stop.
    private static let patienceAtStop = TimeAmount.seconds(5)

    private let writer: InvalidTokenClient
    private let stop: StopSignal
    private let limit: TimeAmount
    /// The origin of the records, for messages.
    private let name: String
    private var patience: WritePatience
    private var hasReportedRedis = false
    /// The last error, if this writer no longer waits for Redis; `nil` again once Redis answers.
    private(set) var givenUp: String?

    /// - Parameter limit: the maximum time to wait for Redis.
    init(_ writer: InvalidTokenClient, limit: TimeAmount, stop: StopSignal, name: String) {
        self.writer = writer
        self.limit = limit
        self.stop = stop
        self.name = name
        patience = WritePatience(limit: limit)
    }

    /// Waits until Redis is reachable and accepts writes.
    /// - Throws: `QueueFailure`: at once if it is permanent, otherwise after the time limit, or when the process must end.
    mutating func waitUntilReady() async throws {
        while true {
            do {
                // Checks that the keys have the right types, and that Redis accepts writes.
                _ = try await writer.mark([])
                try await writer.probe()
                return answered()
            } catch {
                guard error.mayPass, !stop.isStopped, await wait(after: error, waiting: 0) else { throw error }
            }
        }
    }

    /// - Returns: `nil` if Redis did not accept the records within the time limit; from then on each batch is tried once.
    mutating func write(_ records: [InvalidToken]) async -> [InvalidToken.Marking]? {
        while true {
            do {
                let markings = try await writer.mark(records)
                answered()
                return markings
            } catch {
                guard givenUp == nil, await wait(after: error, waiting: records.count) else {
                    givenUp = "\(error)"
                    return nil
                }
            }
        }
    }

    private mutating func answered() {
        if hasReportedRedis { Terminal.note("\(name): connected to Redis again\n") }
        (hasReportedRedis, givenUp) = (false, nil)
        patience.succeeded()
    }

    /// - Returns: true to try again.
    private mutating func wait(after failure: QueueFailure, waiting count: Int) async -> Bool {
        if stop.isStopped { patience.shorten(to: Self.patienceAtStop, now: .now()) }
        guard let pause = patience.failed(now: .now(), random: Double.random(in: 0..<1)) else {
            return false
        }
        // A connection attempt in its first second is not worth a message.
        if !hasReportedRedis, patience.hasLasted(.seconds(1), now: .now()) {
            hasReportedRedis = true
            let waiting = count > 0 ? "; \(count) records that have been read wait for Redis" : ""
            Terminal.note(
                "\(name): waiting for Redis, at most \(limit.nanoseconds / 1_000_000_000) s: \(failure)\(waiting)\n"
            )
        }
        do {
            try await Task.sleep(for: .nanoseconds(pause.nanoseconds))
        } catch {
            // Cancelled; `patience` still limits the wait.
        }
        return true
    }
}
