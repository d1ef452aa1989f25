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
            let (all, page, count) = try await QueueScript.countRetries.run(client, [keys.retry]) { command in
                command.append(counted)
                command.append(pageSize)
                command.append(pageBytes)
            } reading: { reply in
                let (all, count) = (reply.number(), reply.number())
                var page = RetryCounts()
                (page.retrying, page.scheduled, page.deferred) = (reply.number(), reply.number(), reply.number())
                return (all, page, count)
            }
            guard all <= maximumJobs else { return nil }
            counts.retrying += page.retrying
            counts.scheduled += page.scheduled
            counts.deferred += page.deferred
            counted += count
            guard count > 0, counted < all else { return counts }
        }
    }
}
