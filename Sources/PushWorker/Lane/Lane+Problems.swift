import NIOCore
import PushQueue

/// Since when the lane cannot do its work.
extension Lane {
    /// Notes what is wrong now. To be called about once a second.
    func note(_ problems: [String], now: NIODeadline) {
        guard !problems.isEmpty || !problemsSince.isEmpty else { return }
        let before = problemsSince
        problemsSince = Dictionary(problems.map { ($0, before[$0] ?? now) }) { one, _ in one }
    }

    /// The obstacles that have lasted long enough to be reported.
    func lastingObstacles(now: NIODeadline) -> [WorkerReport.Obstacle] {
        obstacles.filter { now - (problemsSince[$0.reason] ?? now) >= Readiness.patience }
    }

    /// Whether the lane can do its work now. From anywhere.
    func health() -> EventLoopFuture<WorkerHealth> {
        eventLoop.submit { [self] in
            let now = eventLoop.now
            let problems = problems
            note(problems, now: now)
            return WorkerHealth(
                problems.map { sentence in
                    let seconds = (now - (problemsSince[sentence] ?? now)).nanoseconds / 1_000_000_000
                    return .init(sentence: sentence, seconds: Int(seconds))
                })
        }
    }
}
