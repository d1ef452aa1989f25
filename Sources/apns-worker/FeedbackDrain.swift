import APNS
import NIOCore
import PushQueue

/// Reads one app's feedback service to its end, into Redis and then to whoever else wants it.
struct FeedbackDrain: Sendable {
    /// What all apps' drains share.
    struct Means: Sendable {
        let writer: InvalidTokenWriter
        let outputs: FeedbackOutputs
        let stop: FeedbackStop
        let progress: FeedbackProgress
        /// Records that are written at once, at the most.
        let batch: Int
        /// For how long the service may send nothing.
        let silence: TimeAmount
        /// For how long Redis may be away.
        let redisPatience: TimeAmount
    }

    /// How long Redis is waited for once the process is to end.
    private static let patienceAtStop = TimeAmount.seconds(5)

    private let app: FeedbackApp
    private let means: Means
    private var patience: WritePatience
    private var report: FeedbackReport
    /// Why Redis was given up.
    private var givenUp: String?
    private var toldOfRedis = false

    init(_ app: FeedbackApp, _ means: Means) {
        self.app = app
        self.means = means
        patience = WritePatience(limit: means.redisPatience)
        report = FeedbackReport(
            app: app.name, topic: app.topic, environment: app.environment, endpoint: "\(app.endpoint)")
    }

    /// Does it all. Nothing of it is thrown: what went wrong is in the report.
    mutating func run() async -> FeedbackReport {
        let began = ContinuousClock.now
        do {
            try await waitForRedis()
            try await readAll()
        } catch {
            report.error = report.error ?? "\(error)"
        }
        let took = (ContinuousClock.now - began).components
        report.seconds = Double(took.seconds) + Double(took.attoseconds / 1_000_000_000_000_000) / 1000
        return report
    }

    /// Before the service is asked, which forgets what it has sent, Redis has to be there and to take what will be written.
    private mutating func waitForRedis() async throws {
        while true {
            do {
                _ = try await means.writer.mark([])
                return redisAnswered()
            } catch {
                guard error.mayPass, !means.stop.isStopped, await waitAfter(error, waiting: 0) else {
                    throw NotAsked(description: "\(error); the feedback service was not asked, and keeps what it has")
                }
            }
        }
    }

    private struct NotAsked: Error, CustomStringConvertible { let description: String }

    private mutating func readAll() async throws {
        let session = try await FeedbackSession.connect(app.session(silence: means.silence))
        defer { session.close() }
        try await means.stop.withHandler({ session.stop() }) {
            do {
                while case let tuples = try await session.next(atMost: means.batch), !tuples.isEmpty {
                    await take(tuples)
                    // What is on its way is still taken, but no more is asked for than must be.
                    if givenUp != nil { session.stop() }
                }
            } catch {
                report.incompleteBytes = try await session.incompleteBytes()
                throw error
            }
        }
    }

    private mutating func take(_ tuples: [FeedbackTuple]) async {
        let records = tuples.map { tuple in
            InvalidToken(
                token: tuple.token.hex, at: Int64(tuple.seconds) * 1000, reason: "Feedback",
                topic: ByteBuffer(string: app.topic), environment: app.environment, source: .feedback)
        }
        report.records += records.count
        means.progress.add(records.count)
        let markings = await write(records)
        var lines = ByteBuffer()
        for (index, record) in records.enumerated() {
            let outcome = Self.word(markings?[index])
            if markings == nil || means.outputs.isWanted {
                record.writeLine(to: &lines, app: app.name, outcome: outcome)
            }
            switch markings?[index] {
            case .added: report.added += 1
            case .known: report.known += 1
            case .registeredSince: report.registeredSince += 1
            case nil: report.spilled += 1
            }
        }
        if markings == nil {
            let reason = givenUp ?? "no answer"
            let place = await means.outputs.spill.keep(lines, app: app.name, count: records.count, because: reason)
            report.error = "Redis did not take \(report.spilled) of the records, which are in \(place): \(reason)"
        }
        await means.outputs.write(lines, count: records.count)
    }

    private static func word(_ marking: InvalidTokenSet.Marking?) -> String {
        switch marking {
        case .added: "added"
        case .known: "known"
        case .registeredSince: "registered_since"
        case nil: "not_written"
        }
    }

    /// - Returns: `nil` when Redis did not take them in all the time that there was.
    private mutating func write(_ records: [InvalidToken]) async -> [InvalidTokenSet.Marking]? {
        while true {
            do {
                let markings = try await means.writer.mark(records)
                redisAnswered()
                return markings
            } catch {
                guard givenUp == nil, await waitAfter(error, waiting: records.count) else {
                    givenUp = "\(error)"
                    return nil
                }
            }
        }
    }

    private mutating func redisAnswered() {
        if toldOfRedis { Terminal.tell("\(app.name): Redis is back\n") }
        (toldOfRedis, givenUp) = (false, nil)
        patience.succeeded()
    }

    /// Waits before it is tried again.
    /// - Returns: whether it is to be tried again.
    private mutating func waitAfter(_ failure: QueueConnection.Failure, waiting count: Int) async -> Bool {
        if means.stop.isStopped { patience.shorten(to: Self.patienceAtStop, now: .now()) }
        guard
            case .again(let pause) = patience.failed(now: .now(), random: Double.random(in: 0..<1))
        else { return false }
        // A connection that is just being made is nothing to tell of.
        if !toldOfRedis, patience.hasLasted(.seconds(1), now: .now()) {
            toldOfRedis = true
            let waiting = count > 0 ? "; \(count) records that have been read wait for it" : ""
            Terminal.tell(
                "\(app.name): Redis is waited for, \(means.redisPatience.nanoseconds / 1_000_000_000) s at the most: "
                    + "\(failure)\(waiting)\n")
        }
        do {
            try await Task.sleep(for: .nanoseconds(pause.nanoseconds))
        } catch {
            // Cancelled; the patience bounds it all the same.
        }
        return true
    }
}
