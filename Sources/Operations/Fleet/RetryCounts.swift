import NIOCore
import PushQueue
import Redis

/// The numbers of retried, scheduled and deferred jobs.
public struct RetryCounts: Sendable, Equatable {
    /// Jobs that failed and are tried again.
    public var retrying = 0
    /// Jobs with a `send_at`.
    public var scheduled = 0
    /// Jobs that could not be sent; no attempt was spent.
    public var deferred = 0

    /// The maximum number of jobs that are counted: counting reads all their wrappers.
    public static let maximumJobs = 50_000
    /// The maximum number of jobs of one call, and the size in bytes at which a call ends.
    private static let (pageSize, pageBytes) = (2000, 1 << 20)

    init() {}

    /// Counts the jobs in a few calls, each of which takes Redis a few ms.
    /// - Returns: `nil` if there are more than ``maximumJobs``.
    /// - Throws: `RedisError`, or ``QueueConnection/Failure/unexpectedReply(_:)``.
    static func read(_ client: RedisClient, _ keys: QueueKeys) async throws -> RetryCounts? {
        var (counts, counted) = (RetryCounts(), 0)
        while true {
            let reply = try await client.call(
                QueueScript.countRetries.command([keys.retry]) { command in
                    command.append(counted)
                    command.append(pageSize)
                    command.append(pageBytes)
                })
            let numbers = reply.root.children.compactMap(\.number)
            guard numbers.count == 5 else { throw QueueConnection.Failure.unexpectedReply(.countRetries) }
            guard numbers[0] <= maximumJobs else { return nil }
            counts.retrying += numbers[2]
            counts.scheduled += numbers[3]
            counts.deferred += numbers[4]
            counted += numbers[1]
            guard numbers[1] > 0, counted < numbers[0] else { return counts }
        }
    }
}
