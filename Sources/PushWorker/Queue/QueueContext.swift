import Logging
import NIOCore
import PushJob
import PushQueue

/// The state of one queue on one lane that several parts need: its configuration, Redis' clock, operators' commands, and the name under
/// which the lane claims jobs.
///
/// Only the queue's consumer changes it.
final class QueueContext {
    let id: QueueID
    let keys: QueueKeys
    let format: JobFormat
    let isSidekiq: Bool
    let limits: QueueLimits
    let logger: Logger
    private let eventLoop: any EventLoop
    private var names: HolderNames
    /// The digest of the configuration that decides which jobs of the queue the lane accepts.
    var configuration = ConfigurationDigest(routing: [], rules: [])
    /// The other configurations of living workers, at the time of the last claim with jobs.
    var otherConfigurations: Set<ConfigurationDigest> = []
    /// The operators' commands about the queue's jobs.
    var commands = JobCommands() {
        didSet { hasCommands = !commands.isEmpty }
    }
    /// True if there is a command. A stored flag, because each job asks, and copying the commands costs time.
    private(set) var hasCommands = false
    /// The number of notifications that were in flight when the last change of commands cancelled them.
    var cancelledInFlight = 0
    /// True if, at the last claim, the queue was paused with `--now`, which returns unsubmitted jobs to Redis.
    var handsBack = false
    /// Until this time, claims make Redis sort the queue's jobs by their shares: a minute after the last job with `fair` or `urgent`.
    private(set) var sortsUntil = NIODeadline.distantPast
    /// Redis' last reported time, and the time of that report by the event loop's clock.
    private var clock: (at: NIODeadline, milliseconds: Int64) = (.distantPast, 0)

    init(_ queue: QueueConfiguration, id: QueueID, lane: LaneContext) {
        self.id = id
        keys = queue.keys
        format = queue.format
        isSidekiq = queue.format != .native
        limits = queue.limits
        names = HolderNames(lane: "\(lane.configuration.workerName).\(lane.index)")
        eventLoop = lane.eventLoop
        var logger = lane.logger
        if lane.configuration.queues.count > 1 { logger[metadataKey: "queue"] = "\(queue.keys.queue)" }
        self.logger = logger
    }

    var name: String { keys.queue }

    // MARK: Time

    /// Redis' time in milliseconds since 1970.
    var now: Int64 { time(at: eventLoop.now) }

    /// Redis' time, in milliseconds since 1970, at a time of the event loop.
    func time(at now: NIODeadline) -> Int64 { clock.milliseconds + (now - clock.at).nanoseconds / 1_000_000 }

    /// True once Redis has reported its time.
    var knowsTime: Bool { clock.at > .distantPast }

    /// The time of Redis' last answer to a claim.
    var answeredAt: NIODeadline { clock.at }

    func setClock(_ milliseconds: Int64) { clock = (eventLoop.now, milliseconds) }

    /// The difference of Redis' clock and the event loop's, in milliseconds.
    var clockOffset: Int64 { clock.milliseconds - Int64(clock.at.uptimeNanoseconds / 1_000_000) }

    /// Records a job that makes Redis sort the queue.
    func recordSorted(now: NIODeadline) { sortsUntil = now + .minutes(1) }

    // MARK: Configurations

    /// Sets the apps that decide which jobs the lane accepts from now on.
    func accept(by apps: [AppConfiguration]) {
        let apps = apps.sorted { $0.name < $1.name }
        let format =
            switch format {
            case .native: "native"
            case .sidekiq(let classes): "sidekiq \(classes.sorted())"
            }
        configuration = ConfigurationDigest(
            routing: apps.flatMap(\.routing),
            rules: [WorkerVersion.current, format, "\(limits.maximumJobSize)"] + apps.flatMap(\.rules))
    }

    /// True if all living workers have the same apps with the same topics.
    var routesAlike: Bool { otherConfigurations.allSatisfy { $0.routing == configuration.routing } }

    /// Returns the configurations that have refused a job, including the lane's own; `nil` if this refusal is final, because no other
    /// living worker may accept the job.
    func refusals(of job: Envelope, in body: ByteBuffer) -> Set<ConfigurationDigest>? {
        guard !otherConfigurations.isEmpty else { return nil }
        let refused = Self.refusals(of: job, in: body).union([configuration])
        guard !otherConfigurations.isSubset(of: refused), refused.count < ConfigurationDigest.maximumInList else {
            return nil
        }
        return refused
    }

    /// Returns the configurations that have refused a job, according to its envelope.
    private static func refusals(of job: Envelope, in body: ByteBuffer) -> Set<ConfigurationDigest> {
        ConfigurationDigest.list(job.refusals(in: body) ?? "")
    }

    // MARK: Names

    /// The number of lost leases. After each loss the lane continues under another name.
    var generation: Int { names.generation }

    /// The name under which the lane holds the lease.
    var holder: String { names.current }

    /// Switches to another name, because the lease was lost.
    func rejoin() { names.renew() }

    /// Returns the bytes that `apns-id`s are derived from: the job's id or, without one, its first claim.
    /// - Parameter generation: the generation of the lease when the job was claimed.
    func identity(of job: Job, claim: ClaimID, generation: Int) -> ByteBuffer {
        if let id = job.id ?? job.envelope.origin { return job.text(id) }
        return ByteBuffer(string: "\(names.name(ofGeneration: generation)):\(claim)")
    }

    /// Returns the first claim of a job, as `<lane>:<number>.<stamp>`.
    /// - Parameter claim: the first claim of the job on this lane.
    private func origin(of job: Job, claim: ClaimID) -> ByteBuffer {
        job.envelope.origin.map(job.text) ?? ByteBuffer(string: "\(holder):\(claim)")
    }

    // MARK: Reservations

    /// Returns the reservation of a job's id; `nil` if the job need not be unique.
    /// - Parameter claim: the first claim of the job on this lane.
    func reservation(of job: Job, claim: ClaimID) -> Reservation? {
        guard job.uniqueFor != nil else { return nil }
        return Reservation(of: job, claim: claim, origin: origin(of: job, claim: claim))
    }

    /// True if a job's reservation outlives the job: notifications were or may have been delivered, or several parts return to Redis.
    func keepsReservation(_ job: Job, _ tally: JobTally?) -> Bool {
        job.uniqueFor != nil
            && (job.envelope.keepsReservation || job.envelope.reclaims > 0 || tally?.keepsReservation == true)
    }

    /// Returns the beginning of the wrapper for the next attempt.
    /// - Parameters:
    ///   - firstClaim: the claim that gives a job without an id its identity; `nil` for `claim`.
    ///   - refusedBy: the configurations that refuse the job; empty to keep those of its envelope.
    ///   - fails: true if the caller writes a failure, which replaces the last one.
    ///   - keepsReservation: true if the job's reservation outlives the job.
    ///   - namesClaim: true to make the wrapped job unique, because a sorted set would merge equal members.
    func wrapper(
        of job: Job, claim: ClaimID, firstClaim: ClaimID? = nil, attempt: Int, firstSeen: Int64,
        refusedBy: Set<ConfigurationDigest> = [], fails: Bool = false, namesClaim: Bool = true, keepsReservation: Bool
    ) -> EnvelopeWriter {
        var writer = EnvelopeWriter(attempt: attempt)
        if let id = job.id { writer.write(id: job.text(id)) }
        if job.id == nil || job.uniqueFor != nil { writer.write(origin: origin(of: job, claim: firstClaim ?? claim)) }
        writer.write(enqueued: firstSeen)
        writer.write(reserved: keepsReservation)
        writer.write(due: job.envelope.isDue)
        writer.write(requeues: job.envelope.requeues)
        writer.write(requeued: job.envelope.requeued)
        if !fails { writer.write(error: job.envelope.error.map(job.bytes)) }
        let refusals = refusedBy.isEmpty ? Self.refusals(of: job.envelope, in: job.body) : refusedBy
        writer.write(refused: ConfigurationDigest.text(refusals))
        if namesClaim { writer.write(claim: ByteBuffer(string: "\(holder):\(claim)")) }
        return writer
    }

    /// Returns the head of the wrapper for the notifications of a job that have not ended.
    /// - Parameter tokens: the tokens of these notifications.
    func headOfRest(of job: ActiveJob, _ fanOut: FanOut, tokens: [ByteBuffer]) -> ByteBuffer {
        let envelope = fanOut.job.envelope
        var writer = wrapper(
            of: fanOut.job, claim: job.claim, firstClaim: fanOut.claim, attempt: envelope.attempt,
            firstSeen: job.firstSeen,
            keepsReservation: keepsReservation(fanOut.job, job.tally)
                || fanOut.job.uniqueFor != nil && job.tally?.postponed.isEmpty == false)
        if envelope.reclaims > 0 { writer.write(reclaims: envelope.reclaims) }
        writer.write(wait: envelope.wait.map(fanOut.job.bytes))
        writer.write(tokens: tokens)
        return writer.head()
    }
}

/// The successive names of a lane as the holder of its lease on a queue.
private struct HolderNames {
    private(set) var generation = 0
    private(set) var current: String
    private let lane: String

    /// - Parameter lane: the name of the lane among all lanes of the fleet: `<worker>.<lane>`.
    init(lane: String) { (self.lane, current) = (lane, lane) }

    mutating func renew() {
        generation += 1
        current = "\(lane).\(generation)"
    }

    func name(ofGeneration generation: Int) -> String {
        generation == self.generation ? current : generation > 0 ? "\(lane).\(generation)" : lane
    }
}
