import NIOCore

/// A request to claim jobs and to renew the lease.
public struct ClaimRequest: Sendable {
    /// The maximum number of jobs; 0 only renews the lease.
    public var count: Int
    /// The number of the first claim. To repeat a claim whose reply was lost, pass the same number.
    public var first: Int
    /// True for the lane's first claim.
    public var join: Bool
    /// The version of the job commands that the lane knows; other versions are returned with the claim.
    public var knownCommands: String
    /// The digest of the lane's configuration; `nil` while the lane accepts no jobs.
    public var configuration: ConfigurationDigest?
    /// True if the lane has met a job with `fair` or `urgent`: the queue sorts its jobs from then on.
    public var sort: Bool
    /// The lane's report about itself, sent at intervals; the claim then also returns operators' commands.
    public var heartbeat: WorkerHeartbeat?

    public init(
        count: Int, first: Int, join: Bool, knownCommands: String = "", configuration: ConfigurationDigest? = nil,
        sort: Bool = false, heartbeat: WorkerHeartbeat? = nil
    ) {
        (self.count, self.first, self.join) = (count, first, join)
        (self.knownCommands, self.configuration) = (knownCommands, configuration)
        (self.sort, self.heartbeat) = (sort, heartbeat)
    }
}

/// The result of a ``ClaimRequest``.
public struct Claimed: Sendable {
    public var isPaused: Bool
    /// True if the pause asks lanes to hand back the jobs that they have not submitted.
    public var handsBack = false
    /// True if the lane's lease had expired and its claims were reclaimed: it must continue under another name.
    public var leaseLost: Bool
    /// Redis' time in milliseconds since 1970.
    public var now: Int64
    /// Milliseconds until more jobs can be claimed: 0 if some are waiting, `nil` if there are none.
    public var nextDue: Int64?
    /// True if the claim has looked for lanes whose leases have expired.
    public var hasLookedAround: Bool
    /// A lane whose lease has expired. Its claims should be reclaimed.
    public var expiredWorker: String?
    /// The number of dead letters that were evicted to stay within the limits.
    public var evicted: Int
    /// An operator's command, if a heartbeat was sent. The same command is returned with each heartbeat until it expires.
    public var command: WorkerCommand?
    /// The stamp of the claims; empty without jobs.
    public var stamp: String
    /// The number of claims that the lane had before this claim; negative if unknown.
    public var held: Int
    /// All job commands; `nil` if the lane knows them already.
    public var commands: JobCommands?
    /// The configurations of other living workers of the queue that differ from the lane's own; empty if the claim returned no jobs.
    public var otherConfigurations: Set<ConfigurationDigest> = []
    /// The jobs. Their claims have consecutive numbers, beginning with that of the request. They share one buffer.
    public var bodies: [ByteBuffer]
}

extension Claimed {
    init(_ reply: inout ScriptReply) {
        let (status, now, due) = (reply.number(), Int64(reply.number()), reply.numberIfAny())
        let expired = reply.bytesOrNull()
        self.init(
            isPaused: status == 1 || status == 3, handsBack: status == 3, leaseLost: status == 2, now: now,
            nextDue: due, hasLookedAround: expired != nil,
            expiredWorker: expired.flatMap { $0.readableBytes > 0 ? String(buffer: $0) : nil },
            evicted: reply.number(),
            command: reply.textIfAny().flatMap { WorkerCommand($0) }, stamp: reply.text(), held: reply.number(),
            commands: JobCommands(hash: reply.children()),
            otherConfigurations: Set(reply.children().compactMap { $0.string.flatMap { ConfigurationDigest($0) } }),
            bodies: reply.allBytes())
    }
}
