import NIOConcurrencyHelpers
import NIOCore
import PushQueue

/// A worker's readiness, and the problems that prevent it from working.
package struct WorkerHealth: Sendable, Equatable {
    /// A problem that prevents the worker from working.
    package struct Problem: Sendable, Equatable {
        package var kind: WorkerReport.Obstacle.Kind
        package var sentence: String
        /// The duration so far, in seconds.
        package var seconds: Int

        init(_ kind: WorkerReport.Obstacle.Kind, _ sentence: String, seconds: Int) {
            (self.kind, self.sentence, self.seconds) = (kind, sentence, seconds)
        }
    }

    /// The problems, each once, with the longest duration among the lanes that have it.
    package private(set) var details: [Problem] = []
    /// True if the worker is ending and accepts no more jobs.
    package var isDraining = false

    package var problems: [String] { details.map(\.sentence) }

    /// True if jobs that arrive now can be sent.
    package var isReady: Bool { details.isEmpty }

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

/// The time of the last run of a lane's event loop. The lane records it at least once per second. So readers learn if the loop is stuck
/// without waiting for it. Safe to use from any thread.
final class LoopPulse: Sendable {
    /// A loop that has not run for this time is stuck. This is ten times the longest interval between records, and longer than any
    /// legitimate work.
    static let patience = TimeAmount.seconds(10)

    private enum State {
        case starting
        case beating(NIODeadline)
        case stopped
    }

    private let state = NIOLockedValueBox(State.starting)

    func beat(_ now: NIODeadline) {
        state.withLockedValue { if case .stopped = $0 {} else { $0 = .beating(now) } }
    }

    func stop() { state.withLockedValue { $0 = .stopped } }

    /// Returns the time since the loop last ran if it is stuck; `nil` otherwise.
    func stuck(after patience: TimeAmount = patience, now: NIODeadline) -> TimeAmount? {
        guard case .beating(let last) = state.withLockedValue({ $0 }), now - last >= patience else { return nil }
        return now - last
    }
}

extension EventLoopFuture where Value: Sendable {
    /// Waits for the value until a deadline, because a stuck event loop never provides one.
    /// - Returns: `nil` if the future failed or was not complete in time.
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
                // The sleep is cancelled when the value has arrived.
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
