import Foundation
import Synchronization

/// Prints events with the seconds since the run began, and keeps the problems of the run itself.
final class EventLog: Sendable {
    private struct State {
        var begin = ContinuousClock.now
        var problems = Problems()
    }

    private let state = Mutex(State())

    func start() { state.withLock { $0.begin = .now } }

    var milliseconds: Int {
        let (seconds, attoseconds) = (ContinuousClock.now - begin).components
        return Int(seconds) * 1000 + Int(attoseconds / 1_000_000_000_000_000)
    }

    var seconds: Double { Double(milliseconds) / 1000 }

    var problems: Problems { state.withLock { $0.problems } }

    func wait(until milliseconds: Int) async {
        // This task is never cancelled.
        try? await Task.sleep(until: begin + .milliseconds(milliseconds), clock: .continuous)
    }

    func write(_ event: String) {
        let line = String(format: "%7.1f s  ", seconds) + event + "\n"
        FileHandle.standardOutput.write(Data(line.utf8))
    }

    func note(_ what: String, _ example: String) { state.withLock { $0.problems.add(what, example) } }

    private var begin: ContinuousClock.Instant { state.withLock { $0.begin } }
}
