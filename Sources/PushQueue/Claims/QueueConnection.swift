import NIOCore
import PrintableText
import Redis

/// A lane's access to its queue, with a call for each transition of jobs, over a Redis client on the same event loop.
///
/// Not thread-safe. Use it only on the client's event loop; completions are called there, too.
public final class QueueConnection {
    public struct Settled: Sendable, Equatable {
        /// Notifications that had no attempt left, and became dead letters; see ``Settlement/fail(_:_:)``.
        public struct Exhausted: Sendable, Equatable {
            public let app: String
            public let notifications: Int
        }

        /// The number of claims that were no longer the lane's own, and were left alone.
        public var lost: Int
        /// The number of dead letters that were evicted to stay within the limits.
        public var evicted: Int
        /// The campaigns that their guards have paused in this call.
        public var stopped: [StoppedCampaign] = []
        public var exhausted: [Exhausted] = []
    }

    public struct Reclaimed: Sendable, Equatable {
        /// The number of jobs that went back to the list.
        public var reclaimed: Int
        /// The number of jobs that became dead letters.
        public var poisoned: Int
        /// The number of dead letters that were evicted to stay within the limits.
        public var evicted: Int
        /// The number of claims that remain: a call gives back only as many as Redis handles in a few milliseconds.
        public var left: Int
    }

    public struct Released: Sendable, Equatable {
        /// The number of jobs that went back to the list.
        public var released: Int
        /// The number of claims that remain: a call gives back only as many as Redis handles in a few milliseconds.
        public var left: Int
    }

    public let keys: QueueKeys
    public private(set) var worker: String
    /// True if the set of invalid tokens is on the queue's server, and fails over with it.
    public let holdsInvalidTokens: Bool

    private let client: any RedisSender
    /// The client for blocking waits, which delay later commands. Only one lane of a worker has it.
    private let waiter: RedisClient?
    private let limits: QueueLimits
    private let random: () -> UInt32
    private let scripts: ScriptRunner

    /// - Parameters:
    ///   - client: a client for commands that do not block.
    ///   - waiter: a client for commands that block; `nil` if the lane never waits.
    ///   - random: the source of the random part of stamps.
    public init(
        client: any RedisSender, waiter: RedisClient? = nil, keys: QueueKeys, worker: String, limits: QueueLimits,
        holdsInvalidTokens: Bool = false, clock: ClockSource = .server,
        random: @escaping () -> UInt32 = { .random(in: .min ... .max) }
    ) {
        self.client = client
        self.waiter = waiter
        self.holdsInvalidTokens = holdsInvalidTokens
        self.random = random
        self.keys = keys
        self.worker = worker
        self.limits = limits
        scripts = ScriptRunner(client: client, clock: clock)
    }

    /// True while Redis can be reached.
    public var isReady: Bool { client.isReady }

    /// Uses another name from now on, because the lease under the old one was lost.
    public func use(worker: String) { self.worker = worker }

    /// Claims jobs and renews the lease.
    public func claim(_ request: ClaimRequest, completion: @escaping Completion<Claimed>) {
        var keyNames = [
            keys.jobs, keys.retry, keys.failed, keys.claimed(worker), keys.inbox, keys.workers, keys.paused,
            keys.dead, keys.deadBytes, keys.statsPrefix, keys.next(worker), keys.results, keys.jobCommands,
            keys.minutesPrefix,
            keys.configurations, keys.sorted, keys.shares, keys.campaigns, keys.campaignPrefix, keys.largest,
        ]
        if let heartbeat = request.heartbeat {
            keyNames += [keys.workerInfo, keys.order(heartbeat.process), keys.source]
        }
        scripts.run(
            .claim, keyNames,
            arguments: { [worker, limits, random, keys] command in
                command.append(worker)
                command.append(request.join ? 1 : 0)
                command.append(limits.lease)
                command.append(request.count)
                command.append(request.first)
                // Four letters and digits for the stamp.
                command.append((random() % 1_679_616).digits(4, radix: 36))
                command.append(limits.maximumJobSize)
                command.append(limits.maximumClaimSize)
                command.append(limits.maximumDeadLetters)
                command.append(limits.maximumDeadLetterAge)
                command.append(limits.maximumDeadLetterBytes)
                command.append(keys.head.rawValue)
                command.append(limits.resultsLimit)
                command.append(limits.idleLease)
                command.append(request.knownCommands)
                command.append(request.configuration?.text ?? "")
                command.append(request.sort ? 1 : 0)
                guard let heartbeat = request.heartbeat else { return }
                command.append(Int(heartbeat.uptime))
                command.append(heartbeat.members)
                command.append(QueueSource(keys: keys, format: heartbeat.format, limits: limits).json)
            },
            completion: completion, reading: { Claimed(&$0) })
    }

    /// Reserves the ids of jobs that must be unique.
    /// - Parameter completion: gets the result of each reservation, in their order.
    public func reserve(_ reservations: [Reservation], completion: @escaping Completion<[ReservationResult]>) {
        guard !reservations.isEmpty else { return completion(.success([])) }
        scripts.run(
            .reserve,
            [keys.claimed(worker)], then: reservations.map { keys.unique($0.id) },
            expecting: reservations.count * 4 + 8,
            arguments: { command in
                for reservation in reservations {
                    command.append(reservation.claim)
                    command.append(reservation.origin)
                    command.append(Int(reservation.milliseconds))
                }
            },
            completion: completion
        ) { reply in
            if reply.count != reservations.count { reply.refuse() }
            return reservations.map { _ in reply.value(else: .lost) }
        }
    }

    public func settle(_ settlement: Settlement, completion: @escaping Completion<Settled>) {
        scripts.run(
            .settle,
            [
                keys.claimed(worker), keys.retry, keys.dead, keys.deadBytes, keys.statsPrefix, keys.results,
                keys.campaigns, keys.campaignPrefix, keys.cancelled, keys.cancelledBytes,
                keys.jobCommands, keys.failed, keys.deliveries, keys.uniquePrefix, keys.shares,
            ],
            expecting: settlement.expectedArguments,
            arguments: { [worker, limits, keys] command in
                command.append(worker)
                command.append(limits.maximumDeadLetters)
                command.append(limits.maximumDeadLetterAge)
                command.append(limits.maximumDeadLetterBytes)
                command.append(limits.maximumResults)
                command.append(limits.maximumResultAge)
                settlement.append(to: &command)
                settlement.minute?.append(to: &command, keys)
            },
            completion: completion
        ) { reply in
            // The number of claims that were settled.
            _ = reply.number()
            var settled = Settled(lost: reply.number(), evicted: reply.number())
            var names = reply.children()
            while let name = names.next()?.string, let reason = names.next()?.string {
                settled.stopped.append(StoppedCampaign(campaign: name, reason: reason))
            }
            var exhausted = reply.children()
            while let app = exhausted.next()?.string, let count = exhausted.next()?.number {
                settled.exhausted.append(.init(app: app, notifications: count))
            }
            return settled
        }
    }

    /// Counts the queue's jobs, or returns another worker's reading that is at most ``QueueGauges/maximumAge`` old.
    public func gauges(completion: @escaping Completion<QueueGauges>) {
        scripts.run(
            .gauges, QueueGauges.keyNames(keys),
            arguments: { [keys] in QueueGauges.append(keys, maximumAge: QueueGauges.maximumAge, to: &$0) },
            completion: completion, reading: QueueGauges.read)
    }

    /// Pauses this queue's part of a campaign that its guard has paused in another queue.
    /// - Parameter completion: gets true if the campaign was running in this queue, and has a guard.
    public func stop(_ stopped: StoppedCampaign, completion: @escaping Completion<Bool>) {
        scripts.run(
            .stopCampaign, [keys.jobCommands, keys.campaign(stopped.campaign)],
            arguments: { command in
                command.append(stopped.campaign)
                command.append(stopped.reason)
            },
            completion: completion
        ) { reply in reply.number() == 1 }
    }

    /// Puts claims of a lane whose lease has expired back into the queue.
    /// - Parameter completion: gets `nil` if the lease has not expired, or another lane was faster.
    public func reclaim(_ other: String, completion: @escaping Completion<Reclaimed?>) {
        scripts.run(
            .reclaim,
            [
                keys.workers, keys.claimed(other), keys.jobs, keys.dead, keys.deadBytes, keys.statsPrefix, keys.results,
                keys.workerInfo, keys.minutesPrefix, keys.campaigns, keys.campaignPrefix, keys.failed,
            ],
            arguments: { [limits, keys] command in
                command.append(other)
                command.append(limits.maximumReclaims)
                command.append(limits.maximumDeadLetters)
                command.append(limits.maximumDeadLetterAge)
                command.append(limits.maximumDeadLetterBytes)
                command.append(keys.head.rawValue)
                command.append(limits.resultsLimit)
            },
            completion: completion
        ) { reply in
            let reclaimed = Reclaimed(
                reclaimed: reply.number(), poisoned: reply.number(), evicted: reply.number(), left: reply.number())
            return reclaimed.reclaimed < 0 ? nil : reclaimed
        }
    }

    /// Releases claims that have not been settled. The call that releases the last of them ends the lease.
    /// - Parameters:
    ///   - configuration: the configuration of the lane.
    ///   - process: the name of the lane's process, if the process ends. The operator's command to it is then deleted.
    public func release(
        of configuration: ConfigurationDigest, endOf process: String? = nil,
        completion: @escaping Completion<Released>
    ) {
        let keyNames = [
            keys.workers, keys.claimed(worker), keys.inbox, keys.jobs, keys.workerInfo, keys.configurations,
            keys.shares, keys.failed,
        ]
        scripts.run(
            .release, keyNames + (process.map { [keys.order($0)] } ?? []),
            arguments: { [worker, keys, limits] command in
                command.append(worker)
                command.append(keys.head.rawValue)
                command.append(configuration.text)
                // The configuration counts as living for longer than an outage that other lanes with it can survive.
                command.append(limits.lease + 10_000)
            },
            completion: completion
        ) { reply in Released(released: reply.number(), left: reply.number()) }
    }

    // MARK: Reading claims

    /// Reads all claims of the lane.
    public func claims(completion: @escaping Completion<[ClaimID]>) {
        client.send(RedisCommand("HKEYS", keys.claimed(worker))) { result in
            completion(
                result.mapError(QueueFailure.redis).map { reply in
                    reply.root.children.compactMap { $0.string.flatMap(ClaimID.init(field:)) }
                })
        }
    }

    /// Reads the jobs of some of the lane's claims; `nil` for a claim that no longer exists.
    public func bodies(of claims: [ClaimID], completion: @escaping Completion<[ByteBuffer?]>) {
        var command = RedisCommand("HMGET", expecting: claims.count + 1, bytes: 64 + claims.count * 24)
        command.append(keys.claimed(worker))
        for claim in claims { command.append(claim) }
        client.send(command) { completion($0.mapError(QueueFailure.redis).map { $0.root.children.map(\.bytes) }) }
    }

    // MARK: Jobs that replace others

    /// Makes the jobs with `send_at` the newest of their keys, and then reads the keys of all jobs.
    /// - Parameter completion: gets the value of each job's key; `nil` for a key that does not exist.
    public func newest(of jobs: [NewestJob], completion: @escaping Completion<[ByteBuffer?]>) {
        let due = jobs.filter(\.isAnnounced)
        guard !due.isEmpty else { return readNewest(of: jobs, completion: completion) }
        scripts.run(
            .announceNewest, [keys.claimed(worker)],
            then: due.flatMap { [keys.announced($0.id), keys.newest($0.key)] },
            expecting: due.count * 4 + 8,
            arguments: { command in
                for job in due {
                    command.append(job.id)
                    command.append(Int(job.life))
                }
            },
            completion: { [self] (result: Result<Int, QueueFailure>) in
                switch result {
                case .success: readNewest(of: jobs, completion: completion)
                case .failure(let failure): completion(.failure(failure))
                }
            }, reading: { $0.number() })
    }

    private func readNewest(of jobs: [NewestJob], completion: @escaping Completion<[ByteBuffer?]>) {
        client.send(NewestJob.reading(jobs, keys)) { result in
            completion(
                result.mapError(QueueFailure.redis).flatMap { reply in
                    let values = reply.root.children.map(\.bytes)
                    return values.count == jobs.count
                        ? .success(values) : .failure(.unexpectedReply("MGET: \(values.count) of \(jobs.count)"))
                })
        }
    }

    // MARK: Waiting

    /// True while ``waitForJob(seconds:completion:)`` is possible.
    public var canWait: Bool { waiter?.isReady == true }

    /// Waits for a job, which the server moves to the inbox.
    /// - Parameter completion: gets true if a job has arrived.
    public func waitForJob(seconds: Int, completion: @escaping Completion<Bool>) {
        guard let waiter else { return completion(.success(false)) }
        let command = RedisCommand("BLMOVE", keys.jobs, keys.inbox, keys.head.rawValue, "RIGHT", "\(seconds)")
        waiter.send(command, deadline: .seconds(Int64(seconds) + 5)) { result in
            completion(result.map { !$0.root.isNull }.mapError(QueueFailure.redis))
        }
    }

    /// Ends the wait in flight, and all later ones.
    public func stopWaiting() { _ = waiter?.close() }
}
