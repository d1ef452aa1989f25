import NIOConcurrencyHelpers
import NIOCore

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
