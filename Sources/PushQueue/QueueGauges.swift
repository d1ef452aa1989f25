import NIOCore
import PushJob
import Redis

/// The number of jobs of a queue in each state, all counted in one moment, and the times of those that come next.
public struct QueueGauges: Sendable {
    /// Redis' time when it was counted, in milliseconds since 1970.
    public var now: Int64
    /// Jobs that nobody has taken yet.
    public var jobs: Int
    /// Jobs that wait for their time: retries, scheduled and parked ones.
    public var retries: Int
    /// Jobs that workers have taken and not settled.
    public var claims: Int
    /// Jobs that are to be sent: all but the dead letters.
    public var total: Int { jobs + retries + claims }
    /// Dead letters.
    public var dead: Int
    /// The sum of the dead letters' lengths in bytes.
    public var deadBytes: Int
    /// True if the queue is paused.
    public var isPaused: Bool
    /// When the first of ``retries`` is due, in milliseconds since 1970; `nil` without any.
    public var firstDue: Int64?
    /// The job at the head of the list; `nil` where there is none, or it is larger than ``headLimit``.
    public var head: ByteBuffer?

    /// How large the job at the head may be, in bytes, to be looked at.
    public static let headLimit = 65_536

    /// For how many milliseconds the fleet's workers share a reading: it costs Redis more, the more lanes there are.
    public static let maximumAge = 9500

    /// When the job at the head was enqueued, in milliseconds since 1970, as far as it says.
    /// - Parameter format: how the queue's jobs are written.
    public func headEnqueuedAt(as format: JobFormat) -> Int64? {
        guard let head else { return nil }
        // A body that nobody can read says nothing; the worker that claims it tells of it.
        return try? JobDecoder.decode(head, as: format).enqueuedAt
    }

    /// For how many milliseconds the first of ``retries`` has been due; 0 for one that somebody has put there without a time.
    public var overdue: Int64 {
        guard let firstDue, firstDue > 0 else { return 0 }
        return max(0, now - firstDue)
    }
}

extension QueueConnection {
    /// Counts what the queue holds, or returns what another worker has counted within ``QueueGauges/maximumAge``.
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
    /// Counts what the queue holds, for a command.
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
        let numbers = (0..<min(8, reply.root.count)).compactMap { reply.root[$0].integer }
        guard numbers.count == 8, reply.root.count == 9 else { return nil }
        self.init(
            now: Int64(numbers[0]), jobs: numbers[1], retries: numbers[2], claims: numbers[3], dead: numbers[4],
            deadBytes: numbers[7], isPaused: numbers[5] == 1, firstDue: numbers[2] > 0 ? Int64(numbers[6]) : nil,
            head: reply.root[8].bytes.flatMap { $0.readableBytes > 0 ? $0 : nil })
    }
}
