import NIOCore
import PushJob
import Redis

/// The number of a queue's jobs in each state, counted atomically; the first due time, and the job at the head of the
/// list.
public struct QueueGauges: Sendable {
    /// Redis' time of the count, in milliseconds since 1970.
    public var now: Int64
    /// Jobs that no lane has claimed.
    public var jobs: Int
    /// Retried, scheduled and deferred jobs.
    public var retries: Int
    /// Jobs that are claimed and not settled.
    public var claims: Int
    /// Jobs that are still to be sent: all except the dead letters.
    public var total: Int { jobs + retries + claims }
    /// Dead letters.
    public var dead: Int
    /// The sum of the dead letters' lengths in bytes.
    public var deadBytes: Int
    /// True if the queue is paused.
    public var isPaused: Bool
    /// The due time of the first of ``retries``, in milliseconds since 1970; `nil` if there are none.
    public var firstDue: Int64?
    /// The job at the head of the list; `nil` if the list is empty, or the job is larger than ``headLimit``.
    public var head: ByteBuffer?

    /// The maximum size of ``head`` in bytes.
    public static let headLimit = 65_536

    /// The time for which all workers share one reading, in milliseconds: its cost for Redis grows with the number of
    /// lanes.
    public static let maximumAge = 9500

    /// Returns the time at which the job at the head was enqueued, in milliseconds since 1970; `nil` if unknown.
    /// - Parameter format: the format of the queue's jobs.
    public func headEnqueuedAt(as format: JobFormat) -> Int64? {
        guard let head else { return nil }
        // An unreadable job has no known time; the worker that claims it reports the error.
        return try? JobDecoder.decode(head, as: format).enqueuedAt
    }

    /// The time for which the first of ``retries`` has been due, in milliseconds; 0 if another client has added it
    /// without a due time.
    public var overdue: Int64 {
        guard let firstDue, firstDue > 0 else { return 0 }
        return max(0, now - firstDue)
    }
}

extension QueueConnection {
    /// Counts the queue's jobs, or returns another worker's reading that is at most ``QueueGauges/maximumAge`` old.
    public func gauges(completion: @escaping (Result<QueueGauges, Failure>) -> Void) {
        scripts.run(
            .gauges, QueueGauges.keyNames(keys),
            arguments: { [keys] in QueueGauges.append(keys, maximumAge: QueueGauges.maximumAge, to: &$0) },
            completion: { result in
                completion(
                    result.flatMap { reply in
                        QueueGauges(reply).map { .success($0) } ?? .failure(.unexpectedReply(.gauges))
                    })
            })
    }
}

extension QueueGauges {
    /// Counts the queue's jobs now, for a command.
    /// - Throws: `RedisError`, or ``QueueConnection/Failure/unexpectedReply(_:)``.
    public static func read(_ client: RedisClient, _ keys: QueueKeys) async throws -> QueueGauges {
        let command = QueueScript.gauges.command(keyNames(keys)) { append(keys, maximumAge: 0, to: &$0) }
        guard let gauges = QueueGauges(try await client.call(command)) else {
            throw QueueConnection.Failure.unexpectedReply(.gauges)
        }
        return gauges
    }

    fileprivate static func keyNames(_ keys: QueueKeys) -> [String] {
        [keys.jobs, keys.inbox, keys.retry, keys.workers, keys.dead, keys.paused, keys.deadBytes, keys.gauges]
    }

    fileprivate static func append(_ keys: QueueKeys, maximumAge: Int, to command: inout RedisCommand) {
        command.append(keys.claimed(""))
        command.append(headLimit)
        command.append(keys.head.rawValue)
        command.append(maximumAge)
    }

    fileprivate init?(_ reply: RESPReply) {
        let numbers = (0..<min(8, reply.root.count)).compactMap { reply.root[$0].number }
        guard numbers.count == 8, reply.root.count == 9 else { return nil }
        self.init(
            now: Int64(numbers[0]), jobs: numbers[1], retries: numbers[2], claims: numbers[3], dead: numbers[4],
            deadBytes: numbers[7], isPaused: numbers[5] == 1, firstDue: numbers[2] > 0 ? Int64(numbers[6]) : nil,
            head: reply.root[8].bytes.flatMap { $0.readableBytes > 0 ? $0 : nil })
    }
}
