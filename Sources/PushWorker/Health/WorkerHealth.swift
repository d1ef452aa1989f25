import NIOConcurrencyHelpers
import NIOCore

/// A worker's readiness, and the problems that keep it from its work.
public struct WorkerHealth: Sendable, Equatable {
    /// Something that keeps it from its work.
    public struct Problem: Sendable, Equatable {
        /// The problem, as a sentence.
        public var sentence: String
        /// For how many seconds it has been so.
        public var seconds: Int
    }

    /// The problems; each once, with its longest time, however many lanes have it.
    public private(set) var details: [Problem] = []
    /// True if the worker is ending, and takes no more jobs.
    public var isDraining = false

    /// The problems, as sentences.
    public var problems: [String] { details.map(\.sentence) }

    /// True if jobs that come now can be sent.
    public var isReady: Bool { details.isEmpty }

    init(_ problems: [Problem] = []) {
        for problem in problems { add(problem) }
    }

    mutating func add(_ problem: Problem) {
        guard let known = details.firstIndex(where: { $0.sentence == problem.sentence }) else {
            return details.append(problem)
        }
        details[known].seconds = max(details[known].seconds, problem.seconds)
    }
}

/// When a lane's event loop last turned: told by the lane at least once a second, and read by whoever wants to know whether it
/// is stuck, who need not wait for it. From anywhere.
final class LoopPulse: Sendable {
    /// A loop that has not turned for so long is stuck: it tells ten times as often, and nothing that it does by right takes so long.
    static let patience = TimeAmount.seconds(10)

    private enum State {
        case starting
        case beating(NIODeadline)
        case stopped
    }

    private let state = NIOLockedValueBox(State.starting)

    /// The loop turns.
    func beat(_ now: NIODeadline) {
        state.withLockedValue { if case .stopped = $0 {} else { $0 = .beating(now) } }
    }

    /// The lane has ended, and tells nothing more.
    func stop() { state.withLockedValue { $0 = .stopped } }

    /// For how long the loop has not turned, if it is stuck.
    func stuck(after patience: TimeAmount = patience, now: NIODeadline) -> TimeAmount? {
        guard case .beating(let last) = state.withLockedValue({ $0 }), now - last >= patience else { return nil }
        return now - last
    }
}

extension EventLoopFuture where Value: Sendable {
    /// Waits for the value, but not for ever: an event loop that is stuck never gives one.
    /// - Returns: `nil` where it failed, or did not come in time.
    func get(until deadline: ContinuousClock.Instant) async -> Value? {
        await withCheckedContinuation { continuation in
            let waiting = NIOLockedValueBox<CheckedContinuation<Value?, Never>?>(continuation)
            let resume: @Sendable (Value?) -> Void = { value in
                let first = waiting.withLockedValue { waiting in
                    defer { waiting = nil }
                    return waiting
                }
                first?.resume(returning: value)
            }
            let timer = Task {
                // Cancelled when the value has come.
                guard (try? await Task.sleep(until: deadline)) != nil else { return }
                resume(nil)
            }
            whenComplete { result in
                timer.cancel()
                resume(try? result.get())
            }
        }
    }
}
