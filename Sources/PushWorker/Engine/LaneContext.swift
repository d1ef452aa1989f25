import Glibc
import Logging
import NIOCore
import PushQueue

/// The state of a lane.
enum LaneState {
    case starting
    case running
    /// Claims nothing more until an operator ends that; everything else goes on.
    case quiet
    case draining(Drain)
    case stopped
}

/// Work that is done soon, and once however often it is wanted until then. Belongs to the event loop.
final class SoonTask {
    private let eventLoop: any EventLoop
    /// Checked before ``schedule(in:_:)``, so that a repeated wish costs no closure.
    private(set) var isScheduled = false

    init(_ eventLoop: any EventLoop) { self.eventLoop = eventLoop }

    /// Schedules the work, unless it is scheduled.
    /// - Parameter delay: `nil` for the end of this turn of the event loop.
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

/// The processor time of the thread that asks.
struct ThreadClock {
    private var last: Int64 = 0

    /// Nanoseconds of processor time since the last call.
    mutating func sinceLast() -> Int64 {
        var time = timespec()
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time)
        let now = Int64(time.tv_sec) * 1_000_000_000 + Int64(time.tv_nsec)
        defer { last = now }
        return now - last
    }
}

/// The context that the parts of a lane share: event loop, time, randomness, log, configuration, and the jobs that it
/// works on.
///
/// Belongs to the lane's event loop.
final class LaneContext {
    let eventLoop: any EventLoop
    /// The lane's index in the worker.
    let index: Int
    let logger: Logger
    /// The problems of all lanes of the process, for the log.
    let issues: IssueLog
    /// The seconds since 1970, for provider tokens only: jobs go by Redis' clock.
    let wallClock: @Sendable () -> Int64
    let metrics: LaneMetrics
    let jobs = Table<JobID, ActiveJob>()
    var configuration: WorkerConfiguration
    var state = LaneState.starting
    /// Has the lane do whatever can be done, once this turn of the event loop is over.
    var schedulePump: () -> Void = {}
    /// Has the lane do that now, unless it is already at it.
    var pump: () -> Void = {}
    /// Has the lane send its heartbeat with the next claim or renewal of each queue.
    var reportSoon: () -> Void = {}
    private var generator: any RandomNumberGenerator

    init(
        configuration: WorkerConfiguration, index: Int, eventLoop: any EventLoop, logger: Logger, issues: IssueLog,
        metrics: LaneMetrics, generator: any RandomNumberGenerator = SystemRandomNumberGenerator(),
        wallClock: @escaping @Sendable () -> Int64
    ) {
        self.configuration = configuration
        self.index = index
        self.eventLoop = eventLoop
        self.logger = logger
        self.issues = issues
        self.metrics = metrics
        metrics.clock = { eventLoop.now }
        self.generator = generator
        self.wallClock = wallClock
    }

    deinit { jobs.deallocate() }

    var now: NIODeadline { eventLoop.now }

    /// True while jobs are worked on and nothing is drained, also if none are claimed.
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

    /// From 0 to 1, evenly distributed.
    var jitter: Double { Double.random(in: 0..<1, using: &generator) }

    /// The pause after Redis has refused a command.
    var refusalPause: TimeAmount { .milliseconds(random(in: 500...1500)) }

    /// Does something again that Redis has refused, after a pause.
    func afterRefusal(_ again: @escaping () -> Void) {
        eventLoop.assumeIsolated().scheduleTask(in: refusalPause, again)
    }

    // MARK: Log

    /// Logs a problem that lasts until ``logEnd(_:_:of:at:logger:metadata:)``: once, and then rarely, with the number of occurrences.
    /// - Parameters:
    ///   - subject: identifies the problem among those of all lanes.
    ///   - source: the part of this lane that has it.
    ///   - form: distinguishes it from others of the subject; each is logged.
    func logOngoing(
        _ level: Logger.Level, _ event: String, _ message: @autoclosure () -> String, of subject: String,
        at source: String = "", form: String = "", logger: Logger? = nil,
        metadata: @autoclosure () -> Logger.Metadata = [:]
    ) {
        guard let count = issues.began(subject, at: "\(index):\(source)", form: form, now: now) else { return }
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

    /// Logs an occurrence of a kind that may occur a million times: once, and then at most once per minute, with the number of
    /// occurrences.
    /// - Parameters:
    ///   - kind: identifies the kind of occurrence among those of all lanes.
    ///   - metadata: of all of that kind.
    ///   - example: of this one.
    func logThrottled(
        _ level: Logger.Level = .error, _ event: String, _ message: @autoclosure () -> String, kind: String,
        count: Int = 1, logger: Logger? = nil, metadata: @autoclosure () -> Logger.Metadata = [:],
        example: @autoclosure () -> Logger.Metadata = [:]
    ) {
        issues.occurred(
            kind, count: count, level, message(), logger ?? self.logger, now: now,
            metadata: metadata().merging(["event": "\(event)"]) { $1 }, example: example())
    }

    /// Logs that Redis refused what the fleet shares. It is tried again when it is needed; lost connections are logged elsewhere.
    func logFleetFailure(_ failure: QueueConnection.Failure) {
        guard failure.isAnswer else { return }
        logOngoing(.error, "fleet_state_refused", "Redis refuses the state that workers share: \(failure)", of: "fleet")
    }
}
