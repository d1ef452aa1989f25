import NIOCore
import Redis

/// How many jobs a queue holds, all counted in one moment.
public struct QueueDepth: Sendable, Equatable {
    /// Jobs that nobody has taken yet.
    public var jobs: Int
    /// Jobs that wait for their time: retries, scheduled and parked ones.
    public var retries: Int
    /// Jobs that workers have taken and not settled.
    public var claims: Int

    /// All of them.
    public var total: Int { jobs + retries + claims }

    /// From its parts.
    public init(jobs: Int, retries: Int, claims: Int) {
        self.jobs = jobs
        self.retries = retries
        self.claims = claims
    }

    /// Asks Redis.
    /// - Throws: `RedisError`, or ``QueueConnection/Failure/unexpectedReply(_:)``.
    public static func read(_ client: RedisClient, _ keys: QueueKeys) async throws -> QueueDepth {
        var command = RedisCommand("EVAL", expecting: 8, bytes: 2048)
        command.append(QueueScript.depth.source)
        command.append(4)
        command.append(keys.jobs)
        command.append(keys.inbox)
        command.append(keys.retry)
        command.append(keys.workers)
        command.append(keys.claimed(""))
        let reply = try await client.call(command)
        guard reply.root.count == 3, let jobs = reply.root[0].integer, let retries = reply.root[1].integer,
            let claims = reply.root[2].integer
        else { throw QueueConnection.Failure.unexpectedReply(.depth) }
        return QueueDepth(jobs: jobs, retries: retries, claims: claims)
    }
}
