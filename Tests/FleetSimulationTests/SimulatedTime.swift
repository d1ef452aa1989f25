import Dispatch
import NIOCore
import TestSupport

/// A task at a time of a simulation.
///
/// `@unchecked Sendable`: a simulation has one thread.
final class SimulatedEvent: @unchecked Sendable {
    fileprivate(set) var time: NIODeadline
    /// The number of the event in scheduling order.
    let id: UInt64
    /// The loop that executes the task; `nil` for a task of Redis, APNs or the network.
    let loop: SimulatedLoop?
    fileprivate var task: (() -> Void)?
    /// True if the event became due while its loop was stopped.
    fileprivate var isHeld = false
    /// Fails the promise of a task that is never executed, because an open promise must not be released.
    private var abandonment: (() -> Void)?

    fileprivate init(
        _ time: NIODeadline, _ id: UInt64, _ loop: SimulatedLoop?, _ abandonment: (() -> Void)?,
        _ task: @escaping () -> Void
    ) {
        (self.time, self.id, self.loop) = (time, id, loop)
        (self.abandonment, self.task) = (abandonment, task)
    }

    func cancel() {
        task = nil
        abandonment = nil
    }

    func abandon() {
        let abandonment = abandonment
        cancel()
        abandonment?()
    }
}

/// The time of a simulation, and all scheduled events. Simultaneous events are executed in the order they were scheduled.
final class SimulatedTime {
    private(set) var now = NIODeadline.uptimeNanoseconds(3_600_000_000_000)
    private(set) var steps = 0
    /// A digest of all events, in order.
    private(set) var trace: UInt64 = 0xcbf2_9ce4_8422_2325
    private var heap = TimeHeap<NIODeadline, SimulatedEvent>()
    private var lastID: UInt64 = 0

    /// Redis' time in milliseconds since 1970.
    var milliseconds: Int64 { 1_800_000_000_000 + Int64(now.uptimeNanoseconds / 1_000_000) }

    /// The seconds since the start of the simulation.
    var elapsed: Int { Int(now.uptimeNanoseconds / 1_000_000_000) - 3600 }

    func note(_ value: UInt64) { trace = (trace ^ value) &* 0x100_0000_01b3 }

    @discardableResult
    func schedule(
        at time: NIODeadline, on loop: SimulatedLoop? = nil, abandon: (() -> Void)? = nil, _ task: @escaping () -> Void
    ) -> SimulatedEvent {
        lastID += 1
        let event = SimulatedEvent(max(time, now), lastID, loop, abandon, task)
        heap.insert(event, at: event.time)
        return event
    }

    @discardableResult
    func schedule(in delay: TimeAmount, on loop: SimulatedLoop? = nil, _ task: @escaping () -> Void) -> SimulatedEvent {
        schedule(at: now + delay, on: loop, task)
    }

    /// Executes the next event, or hands it to its loop if the loop is stopped.
    /// - Returns: false if nothing is scheduled.
    func step() -> Bool {
        guard let event = heap.popFirst() else { return false }
        guard let task = event.task else { return true }
        now = event.time
        if let loop = event.loop {
            switch loop.state {
            case .running: break
            case .stopped:
                loop.held.append(event)
                return true
            case .crashed:
                event.abandon()
                return true
            }
        }
        event.cancel()
        event.loop?.isCatchingUp = event.isHeld
        steps += 1
        note(now.uptimeNanoseconds)
        note(event.id)
        task()
        return true
    }

    /// Lets a stopped loop continue: events that became due in the meantime are executed now.
    func resume(_ loop: SimulatedLoop) {
        loop.state = .running
        let held = loop.held
        loop.held = []
        for event in held {
            event.time = now
            event.isHeld = true
            heap.insert(event, at: now)
        }
    }

    func end() { while let event = heap.popFirst() { event.abandon() } }
}

/// The event loop of a worker, in a simulation's time. It can stop temporarily, like a process that is not scheduled.
final class SimulatedLoop: EventLoop, @unchecked Sendable {
    enum State { case running, stopped, crashed }

    private let time: SimulatedTime
    var state = State.running {
        didSet {
            if case .stopped = state { wasStopped = true }
            if wasStopped, state != .crashed { lastStop = now }
        }
    }
    private(set) var wasStopped = false
    /// The time when the loop last stopped, or continued.
    private(set) var lastStop = NIODeadline.distantPast
    /// True while the loop executes an event that became due while the loop was stopped.
    fileprivate(set) var isCatchingUp = false
    /// The events that became due while the loop was stopped.
    fileprivate var held: [SimulatedEvent] = []

    init(_ time: SimulatedTime) { self.time = time }

    func crash() {
        state = .crashed
        let abandoned = held
        held = []
        for event in abandoned { event.abandon() }
    }

    var inEventLoop: Bool { true }
    var now: NIODeadline { time.now }

    func execute(_ task: @escaping @Sendable () -> Void) { time.schedule(at: now, on: self, task) }

    func submit<T>(_ task: @escaping @Sendable () throws -> T) -> EventLoopFuture<T> {
        scheduleTask(deadline: now, task).futureResult
    }

    @discardableResult
    func scheduleTask<T>(deadline: NIODeadline, _ task: @escaping @Sendable () throws -> T) -> Scheduled<T> {
        let promise = makePromise(of: T.self)
        let event = time.schedule(at: deadline, on: self, abandon: { promise.fail(EventLoopError.cancelled) }) {
            do {
                promise.assumeIsolated().succeed(try task())
            } catch {
                promise.fail(error)
            }
        }
        return Scheduled(promise: promise, cancellationTask: { event.cancel() })
    }

    @discardableResult
    func scheduleTask<T>(in time: TimeAmount, _ task: @escaping @Sendable () throws -> T) -> Scheduled<T> {
        scheduleTask(deadline: now + time, task)
    }

    func shutdownGracefully(queue: DispatchQueue, _ callback: @escaping @Sendable ((any Error)?) -> Void) {
        callback(nil)
    }
}

/// The random numbers of a simulation.
final class SimulatedRandom {
    private var generator: SeededGenerator

    init(seed: UInt64) { generator = SeededGenerator(seed: seed) }

    func next() -> UInt64 { generator.next() }

    func chance(_ percent: Double) -> Bool { generator.unit() * 100 < percent }

    func pick(_ range: ClosedRange<Int>) -> Int {
        range.lowerBound + Int(generator.next() % UInt64(range.upperBound - range.lowerBound + 1))
    }

    func delay(_ milliseconds: ClosedRange<Int64>) -> TimeAmount {
        let span = UInt64(milliseconds.upperBound - milliseconds.lowerBound) * 1000 + 1
        return .microseconds(milliseconds.lowerBound * 1000 + Int64(generator.next() % span))
    }
}
