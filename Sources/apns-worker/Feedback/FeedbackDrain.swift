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

    private let app: FeedbackApp
    private let means: Means
    private var writing: FeedbackWriting
    private var report: FeedbackReport

    init(_ app: FeedbackApp, _ means: Means) {
        self.app = app
        self.means = means
        writing = FeedbackWriting(
            means.writer, limit: means.redisPatience, stop: means.stop, name: app.name)
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
        report.took(ContinuousClock.now - began)
        return report
    }

    /// Before the service is asked, which forgets what it has sent, Redis has to be there and to take what will be written.
    private mutating func waitForRedis() async throws {
        do {
            try await writing.waitUntilReady()
        } catch {
            throw NotAsked(description: "\(error); the feedback service was not asked, and keeps what it has")
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
                    if writing.givenUp != nil { session.stop() }
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
        let markings = await writing.write(records)
        var lines = ByteBuffer()
        for (index, record) in records.enumerated() {
            let outcome = Self.word(markings?[index])
            if markings == nil || means.outputs.isWanted {
                record.writeLine(to: &lines, app: app.name, outcome: outcome)
            }
            report.count(markings?[index])
        }
        if markings == nil {
            let reason = writing.givenUp ?? "no answer"
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
}
