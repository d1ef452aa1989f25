import Logging
import NIOCore
import PushQueue
import Redis
import Telemetry

enum LaneState {
    case starting
    case running
    /// The lane claims no jobs until an operator resumes it. Everything else continues.
    case quiet
    case draining(Drain)
    case stopped
}

/// A task that runs soon, and only once even if it was requested several times. Belongs to the event loop.
final class SoonTask {
    private let eventLoop: any EventLoop
    /// Check this before ``schedule(in:_:)``, so that a repeated request allocates no closure.
    private(set) var isScheduled = false

    init(_ eventLoop: any EventLoop) { self.eventLoop = eventLoop }

    /// Schedules the work unless it is already scheduled.
    /// - Parameter delay: `nil` for the end of the current iteration of the event loop.
    func schedule(in delay: TimeAmount? = nil, _ work: @escaping () -> Void) {
        guard !isScheduled else { return }
        isScheduled = true
        let task = { [self] in
            isScheduled = false
            work()
        }
        if let delay {
            eventLoop.assumeIsolated().scheduleTask(in: delay, task)
        } else {
            eventLoop.assumeIsolated().execute(task)
        }
    }
}

/// The values that the parts of a lane share: event loop, time, randomness, log, configuration and jobs.
///
/// Belongs to the lane's event loop.
final class LaneContext {
    /// The lane's calls to the worker and its other lanes, made on this lane's event loop.
    struct Callbacks {
        /// Called with an operator's command to the worker, possibly many times with the same command.
        var command: @Sendable (WorkerCommand) -> Void = { _ in }
        /// Called when more jobs wait than this lane can claim.
        var backlog: @Sendable (_ queue: QueueID) -> Void = { _ in }
        /// Called with the due time of a retry, for the lane that polls.
        var due: @Sendable (_ queue: QueueID, _ time: NIODeadline) -> Void = { _, _ in }
    }

    let eventLoop: any EventLoop
    let index: Int
    let logger: Logger
    /// The ongoing problems of all lanes of the process, for the log.
    let issues: IssueLog
    /// Returns the seconds since 1970. For provider tokens only; jobs use Redis' clock.
    let wallClock: @Sendable () -> Int64
    let metrics: LaneMetrics
    /// The queue of spans of traced jobs; `nil` if spans are not exported.
    let spans: SpanQueue?
    /// The filter of invalid tokens of the process.
    let tokenFilters: TokenFilterSlot
    /// Announces a new master to all Redis clients of the process; `nil` without Sentinels.
    let masterWatch: MasterWatch?
    let jobs = Table<JobID, ActiveJob>()
    /// The scopes of the lane: its apps, campaigns, credentials and endpoints.
    let scopes: ScopeRegister
    var configuration: WorkerConfiguration
    /// The names and the protocols of the lane's apps, by ``AppID/index``.
    var apps: [(name: String, usesGateway: Bool)] = []
    var state = LaneState.starting
    /// Set before the lane starts.
    var callbacks = Callbacks()
    /// Makes the lane do all possible work at the end of the current iteration of the event loop.
    var schedulePump: () -> Void = {}
    /// Makes the lane do all possible work now, unless it is already doing so.
    var pump: () -> Void = {}
    /// True while no app of the lane can send more than probes, so that further jobs stay in the queue.
    var isWaiting: () -> Bool = { false }
    /// Makes the lane send its heartbeat with the next claim or renewal of each queue.
    var reportSoon: () -> Void = {}
    private var generator: any RandomNumberGenerator

    init(
        configuration: WorkerConfiguration, index: Int, eventLoop: any EventLoop, logger: Logger, issues: IssueLog,
        metrics: LaneMetrics, spans: SpanQueue? = nil, tokenFilters: TokenFilterSlot = TokenFilterSlot(),
        masterWatch: MasterWatch? = nil, scopes: ScopeRegister = ScopeRegister(),
        generator: any RandomNumberGenerator = SystemRandomNumberGenerator(),
        wallClock: @escaping @Sendable () -> Int64
    ) {
        self.configuration = configuration
        self.index = index
        self.eventLoop = eventLoop
        self.logger = logger
        self.issues = issues
        self.metrics = metrics
        self.spans = spans
        self.tokenFilters = tokenFilters
        self.masterWatch = masterWatch
        self.scopes = scopes
        metrics.clock = { eventLoop.now }
        self.generator = generator
        self.wallClock = wallClock
    }

    deinit { jobs.deallocate() }

    var now: NIODeadline { eventLoop.now }

    /// True for the lane that polls on behalf of its worker (see ``ClaimWindow``).
    var polls: Bool { index == 0 }

    /// Removes a job that has ended, or that belongs to another lane now.
    func remove(_ id: JobID) {
        scopes.scopes.release(jobs[id].groupScope)
        scopes.scopes.release(jobs[id].addressScope)
        scopes.scopes.release(jobs[id].jobScope)
        jobs.remove(id)
    }

    /// True if traced jobs are recorded, as spans or as exemplars of metrics.
    var recordsTraces: Bool { spans != nil || metrics.measuresTimes }

    /// True while the lane works on jobs and is not draining, even if it claims none.
    var isWorking: Bool {
        switch state {
        case .running, .quiet: true
        case .starting, .draining, .stopped: false
        }
    }

    var isQuiet: Bool { if case .quiet = state { true } else { false } }

    var isDraining: Bool { if case .draining = state { true } else { false } }

    var isStopped: Bool { if case .stopped = state { true } else { false } }

    // MARK: Randomness

    func random(in range: ClosedRange<Int64>) -> Int64 { Int64.random(in: range, using: &generator) }

    /// A random number from 0 to 1, evenly distributed.
    var jitter: Double { Double.random(in: 0..<1, using: &generator) }

    /// The pause after Redis has refused a command.
    var refusalPause: TimeAmount { .milliseconds(random(in: 500...1500)) }

    /// Repeats an action that Redis has refused, after a pause.
    func afterRefusal(_ again: @escaping () -> Void) {
        eventLoop.assumeIsolated().scheduleTask(in: refusalPause, again)
    }

    // MARK: Log

    /// Logs an ongoing problem: when it begins, and then rarely, with the number of occurrences. It ends with
    /// ``logEnd(_:_:of:at:logger:metadata:)``.
    /// - Parameters:
    ///   - subject: identifies the problem among those of all lanes.
    ///   - source: the part of this lane that has the problem.
    ///   - form: the variant of the problem. Each variant is logged.
    func logOngoing(
        _ level: Logger.Level, _ event: String, _ message: @autoclosure () -> String, of subject: String,
        at source: String = "", form: String = "", logger: Logger? = nil,
        metadata: @autoclosure () -> Logger.Metadata = [:]
    ) {
        guard let count = issues.began(subject, event: event, at: "\(index):\(source)", form: form, now: now) else {
            return
        }
        var metadata = metadata()
        metadata["event"] = "\(event)"
        if count > 1 { metadata["count"] = "\(count)" }
        (logger ?? self.logger).log(level: level, "\(message())", metadata: metadata)
    }

    /// Logs the end of a problem, if its beginning was logged and no other lane still has it.
    func logEnd(
        _ event: String, _ message: @autoclosure () -> String, of subject: String, at source: String = "",
        logger: Logger? = nil, metadata: @autoclosure () -> Logger.Metadata = [:]
    ) {
        guard let after = issues.ended(subject, at: "\(index):\(source)", now: now) else { return }
        var metadata = metadata()
        metadata["event"] = "\(event)"
        metadata["after_ms"] = "\(after)"
        (logger ?? self.logger).notice("\(message())", metadata: metadata)
    }

    /// Logs an event that can occur a million times: the first one, and then at most one line per minute, with the number of occurrences.
    /// - Parameters:
    ///   - kind: identifies the kind of event among those of all lanes.
    ///   - metadata: fields that all events of the kind share.
    ///   - example: fields of this event only.
    func logThrottled(
        _ level: Logger.Level = .error, _ event: String, _ message: @autoclosure () -> String, kind: String,
        count: Int = 1, logger: Logger? = nil, metadata: @autoclosure () -> Logger.Metadata = [:],
        example: @autoclosure () -> Logger.Metadata = [:]
    ) {
        issues.occurred(
            kind, count: count, level, message(), logger ?? self.logger, now: now,
            metadata: metadata().merging(["event": "\(event)"]) { $1 }, example: example())
    }

    /// Logs which scopes became slow, and which are good again.
    func reportScopes() {
        for change in scopes.scopes.takeChanges() {
            let (kind, name, app) = scopes.name(of: change.scope)
            let subject = "\(kind.rawValue) \(name) \(app ?? "")"
            var metadata: Logger.Metadata = ["scope": "\(kind.rawValue)", "name": "\(name)"]
            if let app { metadata["app"] = "\(app)" }
            guard change.isSlow else {
                let isWithinSlow = scopes.scopes.isWithinSlow(change.scope)
                logEnd(
                    "scope_good",
                    isWithinSlow ? "no longer judged, because a wider scope fails" : "sending at full rate again",
                    of: subject, metadata: metadata)
                continue
            }
            let record = scopes.record(of: change.scope, .slow, offset: 0)
            metadata["reason"] = "\(record.reason)"
            metadata["jobs"] = record.jobs.isEmpty ? nil : "\(record.jobs.joined(separator: ", "))"
            metadata["others_delivered"] = "\(record.othersDelivered)"
            logOngoing(
                kind == .endpoint || kind == .credential ? .error : .warning, "scope_slow",
                """
                nearly all notifications of the \(kind.rawValue) \(name) fail; its jobs wait, and one notification at a time is sent. \
                \(CredentialAdvice.text(of: kind, record.reason, now: wallClock()))
                """, of: subject, metadata: metadata)
        }
        reportSoon()
        schedulePump()
    }
}

/// The end of a lane. It awaits answers until a deadline, and then settlements for a short time. No I/O.
struct Drain {
    enum Step: Equatable {
        /// Answers to requests in flight are awaited.
        case answering
        /// The time for answers has expired, and Redis gets a short time for the settlements.
        case settling
        /// The time for settlements has expired too.
        case givenUp
    }

    /// The time for settlements after the deadline for answers.
    static let settlementTime = TimeAmount.seconds(2)

    private(set) var step = Step.answering
    private var deadline: NIODeadline

    /// - Parameter limit: the time for answers.
    init(within limit: TimeAmount, now: NIODeadline) { deadline = now + limit }

    /// Moves to the next step once the time of the current one has expired.
    /// - Returns: the new step; `nil` if it has not changed.
    mutating func advance(now: NIODeadline) -> Step? {
        guard now >= deadline else { return nil }
        switch step {
        case .answering:
            step = .settling
            deadline = now + Self.settlementTime
        case .settling: step = .givenUp
        case .givenUp: return nil
        }
        return step
    }

    /// Records that the process did not run for some time. Nothing could arrive in this time.
    mutating func stoodStill(for time: TimeAmount) { deadline = deadline + time }

    var isGivenUp: Bool { step == .givenUp }
}
