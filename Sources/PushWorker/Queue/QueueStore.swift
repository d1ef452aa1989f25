import Logging
import NIOCore
import PushQueue
import Redis

/// The operations of a lane's consumer on one queue in Redis. All calls and completions are on the lane's event loop.
protocol QueueStore: AnyObject {
    typealias Completion<Value> = (Result<Value, QueueConnection.Failure>) -> Void

    /// True while Redis can be reached.
    var isReady: Bool { get }
    /// True while a blocking wait is possible.
    var canWait: Bool { get }
    /// True if the set of invalid tokens is on the queue's server, and fails over with it.
    var holdsInvalidTokens: Bool { get }

    /// Claims under another name from now on.
    func use(holder: String)
    /// - Parameters:
    ///   - knownCommands: the version of the job commands known to the lane.
    ///   - configuration: the configuration by which the lane accepts jobs; `nil` while it accepts none.
    func claim(
        _ claim: ClaimWindow.Claim, knownCommands: String, configuration: ConfigurationDigest?,
        heartbeat: WorkerHeartbeat?, completion: @escaping Completion<QueueConnection.Claimed>)
    func reserve(_ reservations: [Reservation], completion: @escaping Completion<[ReservationResult]>)
    /// Assigns times to jobs of a campaign whose rate is limited.
    /// - Parameter completion: receives the milliseconds until each may be sent.
    func limit(
        campaign: String, _ command: JobCommands.Command, amounts: [Int], completion: @escaping Completion<[Int]>)
    func settle(_ settlement: Settlement, completion: @escaping Completion<QueueConnection.Settled>)
    func reclaim(_ other: String, completion: @escaping Completion<QueueConnection.Reclaimed?>)
    func release(
        of configuration: ConfigurationDigest, endOf worker: String,
        completion: @escaping Completion<QueueConnection.Released>)
    func claims(completion: @escaping Completion<[ClaimID]>)
    func bodies(of claims: [ClaimID], completion: @escaping Completion<[ByteBuffer?]>)
    func gauges(completion: @escaping Completion<QueueGauges>)

    /// Writes tokens to the set of invalid tokens.
    func markInvalid(_ tokens: [InvalidToken], completion: @escaping Completion<Void>)

    /// Waits for a job, which the server moves to the inbox.
    /// - Parameter completion: receives true if a job arrived.
    func waitForJob(seconds: Int, completion: @escaping Completion<Bool>)
    func stopWaiting()
    func close() -> EventLoopFuture<Void>
}

/// A queue in Redis.
final class RedisQueueStore: QueueStore {
    private let client: any RedisSender
    /// The connection for the blocking wait, which delays later commands; only one lane of a worker has one.
    private let waiter: RedisClient?
    private let keys: QueueKeys
    private let limits: QueueLimits
    private let invalidTokens: InvalidTokenSet
    private let clock: ClockSource
    /// The source of the random part of stamps.
    private let random: () -> UInt32
    private var connection: QueueConnection

    init(
        _ queue: QueueContext, client: any RedisSender, waiter: RedisClient?, invalidTokens: InvalidTokenSet,
        clock: ClockSource = .server, random: @escaping () -> UInt32 = { .random(in: .min ... .max) }
    ) {
        self.client = client
        self.waiter = waiter
        self.invalidTokens = invalidTokens
        self.clock = clock
        self.random = random
        keys = queue.keys
        limits = queue.limits
        connection = QueueConnection(
            client: client, keys: queue.keys, worker: queue.holder, limits: queue.limits, clock: clock, random: random)
    }

    var isReady: Bool { client.isReady }

    var canWait: Bool { waiter?.isReady == true }

    var holdsInvalidTokens: Bool { invalidTokens.isWith(client) }

    func use(holder: String) {
        connection = QueueConnection(
            client: client, keys: keys, worker: holder, limits: limits, clock: clock, random: random)
    }

    func claim(
        _ claim: ClaimWindow.Claim, knownCommands: String, configuration: ConfigurationDigest?,
        heartbeat: WorkerHeartbeat?, completion: @escaping Completion<QueueConnection.Claimed>
    ) {
        connection.claim(
            count: claim.count, first: claim.first, join: claim.join, knownCommands: knownCommands,
            configuration: configuration, heartbeat: heartbeat, completion: completion)
    }

    func reserve(_ reservations: [Reservation], completion: @escaping Completion<[ReservationResult]>) {
        connection.reserve(reservations, completion: completion)
    }

    func limit(
        campaign: String, _ command: JobCommands.Command, amounts: [Int], completion: @escaping Completion<[Int]>
    ) {
        guard let perSecond = command.perSecond else { return completion(.success(amounts.map { _ in 0 })) }
        connection.limit(
            campaign: campaign, perSecond: perSecond, since: command.limitedAt, amounts: amounts,
            completion: completion)
    }

    func settle(_ settlement: Settlement, completion: @escaping Completion<QueueConnection.Settled>) {
        connection.settle(settlement, completion: completion)
    }

    func reclaim(_ other: String, completion: @escaping Completion<QueueConnection.Reclaimed?>) {
        connection.reclaim(other, completion: completion)
    }

    func release(
        of configuration: ConfigurationDigest, endOf worker: String,
        completion: @escaping Completion<QueueConnection.Released>
    ) {
        connection.release(of: configuration, endOf: worker, completion: completion)
    }

    func claims(completion: @escaping Completion<[ClaimID]>) {
        connection.claims { completion($0.mapError(QueueConnection.Failure.redis)) }
    }

    func bodies(of claims: [ClaimID], completion: @escaping Completion<[ByteBuffer?]>) {
        connection.bodies(of: claims) { completion($0.mapError(QueueConnection.Failure.redis)) }
    }

    func gauges(completion: @escaping Completion<QueueGauges>) { connection.gauges(completion: completion) }

    func markInvalid(_ tokens: [InvalidToken], completion: @escaping Completion<Void>) {
        invalidTokens.mark(tokens) { completion($0.map { _ in }) }
    }

    func waitForJob(seconds: Int, completion: @escaping Completion<Bool>) {
        guard let waiter else { return completion(.success(false)) }
        let command = RedisCommand("BLMOVE", keys.jobs, keys.inbox, keys.head.rawValue, "RIGHT", "\(seconds)")
        waiter.send(command, deadline: .seconds(Int64(seconds) + 5)) { result in
            completion(result.map { !$0.root.isNull }.mapError(QueueConnection.Failure.redis))
        }
    }

    func stopWaiting() { _ = waiter?.close() }

    func close() -> EventLoopFuture<Void> { waiter?.close() ?? client.eventLoop.makeSucceededVoidFuture() }
}
