import NIOCore
import PushJob
import PushQueue
import Redis

package enum JobAction: Sendable {
    /// The jobs become dead letters.
    /// - Parameter detail: an explanation for the dead letter.
    case cancel(detail: String)
    /// The jobs are removed, and count as cancelled.
    case discard
    /// The jobs are removed after they were pushed elsewhere.
    case remove
    /// The jobs are moved to another queue of the same server.
    case move(to: QueueKeys)
    /// The next attempt of the jobs is due now.
    case run

    fileprivate var name: String {
        switch self {
        case .cancel: "bury"
        case .discard, .remove: "remove"
        case .move: "move"
        case .run: "run"
        }
    }

    fileprivate var isCancellation: Bool {
        switch self {
        case .cancel, .discard: true
        case .remove, .move, .run: false
        }
    }

    /// The counter of the jobs' notifications; empty for none.
    fileprivate var counter: String {
        switch self {
        case .cancel, .discard: Outcome.cancelled.rawValue
        case .remove, .move: "moved"
        case .run: ""
        }
    }
}

/// Writes changes, with one call for several jobs of one place. Jobs that have left their place are not changed.
struct JobWriter {
    struct Changed: Sendable, Equatable {
        /// Jobs that were still in place.
        var changed: Int
        /// Jobs at the head of the list that were processed.
        var passed: Int
        /// Dead letters that were evicted to stay within the limits.
        var evicted: Int
    }

    private let queue: QueueJobs
    private var keys: QueueKeys { queue.keys }
    private var limits: QueueLimits { queue.limits }

    init(_ queue: QueueJobs) { self.queue = queue }

    /// Changes jobs of one place: a set of postponed jobs, the sorted jobs or the list.
    /// - Parameter passing: the number of jobs at the head of the list to process.
    /// - Throws: `RedisError`, or `QueueFailure/unexpectedReply(_:)`.
    func change(
        _ action: JobAction, _ jobs: [StoredJob], in place: QueueJobs.Place, passing: Int = 0
    ) async throws -> Changed {
        var other: QueueKeys?
        if case .move(let keys) = action { other = keys }
        return try await change(
            action.name, in: place, other: other, passing: passing,
            counter: action.counter,
            expecting: jobs.count * 10
        ) { command in
            for job in jobs {
                command.append(job.stored)
                command.append(job.notifications)
                command.append(text(action, job))
                command.append(job.start)
                command.append(job.envelope.original.count)
                let results = action.isCancellation ? results(of: job) : PackedResults()
                command.append(results.argument)
                command.append(results.count)
                command.append(job.job?.campaignName ?? ByteBuffer())
                let reservation = action.isCancellation ? job.endingReservation : nil
                command.append(reservation?.id ?? ByteBuffer())
                command.append(reservation?.origin ?? ByteBuffer())
            }
        }
    }

    /// Puts jobs of the inbox back at the head of the list.
    /// - Returns: their number.
    /// - Throws: `RedisError`, or `QueueFailure/unexpectedReply(_:)`.
    func restoreInbox() async throws -> Int {
        try await change("restore", in: .list, other: nil, passing: 0, counter: "", expecting: 0) { _ in }.passed
    }

    private func change(
        _ action: String, in place: QueueJobs.Place, other: QueueKeys?, passing: Int, counter: String,
        expecting count: Int, _ append: (inout RedisCommand) -> Void
    ) async throws -> Changed {
        var names = [
            keys.jobs, keys.inbox, keys.retry, keys.failed, keys.sorted, keys.cancelled, keys.cancelledBytes,
            keys.statsPrefix,
        ]
        names += [keys.results, keys.campaigns, keys.campaignPrefix, keys.minutesPrefix, keys.uniquePrefix]
        if let other { names += [other.jobs, other.retry, other.failed] }
        return try await QueueScript.changeJobs.run(queue.client, names, expecting: count + 12) { command in
            command.append(action)
            command.append(place.name)
            command.append(keys.head.rawValue)
            command.append((other?.head ?? keys.head).rawValue)
            command.append(passing)
            command.append(String(UInt64.random(in: 0...UInt64.max), radix: 36))
            command.append(limits.maximumDeadLetters)
            command.append(limits.maximumDeadLetterAge)
            command.append(limits.maximumDeadLetterBytes)
            command.append(limits.resultsLimit)
            command.append(counter)
            command.append(DeadLetter.cancelledReason)
            append(&command)
        } reading: { reply in
            Changed(changed: reply.number(), passed: reply.number(), evicted: reply.number())
        }
    }

    private func text(_ action: JobAction, _ stored: StoredJob) -> ByteBuffer {
        switch action {
        case .cancel(let detail):
            var text = ByteBuffer(string: ",\"attempts\":\(stored.envelope.attempt - 1)")
            let failure = stored.failure
            text.writeImmutableBuffer(
                DeadLetter.members(
                    job: stored.job ?? JobDecoder.identify(stored.body, as: queue.format), detail: detail,
                    status: failure?.status, error: failure?.reason, tokens: stored.envelope.tokens(in: stored.body),
                    keepsReservation: stored.keepsReservation))
            return text
        case .run: return stored.madeDue
        case .discard, .remove, .move: return ByteBuffer()
        }
    }

    /// The maximum number of results for one job.
    private static let maximumResults = 1000

    private func results(of stored: StoredJob) -> PackedResults {
        guard limits.results != .off else { return PackedResults() }
        var result = NotificationResult(
            .cancelled, reason: DeadLetter.cancelledReason, attempt: max(0, stored.envelope.attempt - 1))
        result.id = stored.id
        result.app = stored.app.map { String(buffer: $0) }
        result.trace = stored.job?.trace
        result.campaign = stored.campaign
        result.labels = stored.job?.labelsText
        var packed = PackedResults()
        for token in stored.tokens.isEmpty ? [nil] : stored.tokens.prefix(Self.maximumResults).map(Optional.some) {
            result.token = token
            packed.append(result)
        }
        return packed
    }
}
