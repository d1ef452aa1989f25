import TestSupport
import Testing

@testable import PushWorker

@Suite("A lane's queues")
struct QueueScheduleTests {
    /// Runs a schedule of queues that always have jobs, or of the queues where `hasWork` is true.
    /// - Returns: the number of jobs received from each queue.
    private func run(
        _ schedule: inout QueueSchedule, rounds: Int, batch: Int = 100, where hasWork: (Int) -> Bool = { _ in true }
    ) -> [Int: Int] {
        var brought: [Int: Int] = [:]
        for _ in 0..<rounds {
            guard let next = schedule.next({ hasWork($0) ? .ready : .unavailable }) else { break }
            schedule.recordAnswer(next, received: batch, isDry: false)
            brought[next, default: 0] += batch
        }
        return brought
    }

    @Test("share it by their weights while all have work")
    func weights() {
        var schedule = QueueSchedule(weights: [6, 3, 1], isStrict: false)
        let brought = run(&schedule, rounds: 1000)
        #expect(brought == [0: 60_000, 1: 30_000, 2: 10_000])
    }

    @Test("share by jobs, and not by turns")
    func batches() {
        var schedule = QueueSchedule(weights: [1, 1], isStrict: false)
        var brought = [0, 0]
        for _ in 0..<10_000 {
            guard let next = schedule.next({ _ in .ready }) else { break }
            // The second queue's jobs are so large that a claim returns few.
            let count = next == 0 ? 256 : 16
            schedule.recordAnswer(next, received: count, isDry: false)
            brought[next] += count
        }
        #expect(abs(brought[0] - brought[1]) <= 256)
    }

    @Test("get the capacity that others leave")
    func idle() {
        var schedule = QueueSchedule(weights: [6, 3, 1], isStrict: false)
        let brought = run(&schedule, rounds: 100, where: { $0 == 2 })
        #expect(brought == [2: 10_000])
    }

    @Test("get their share once they have work, but not for the time before")
    func comesBack() {
        var schedule = QueueSchedule(weights: [1, 1], isStrict: false)
        _ = run(&schedule, rounds: 1000, where: { $0 == 0 })
        let both = run(&schedule, rounds: 100)
        #expect(both == [0: 5000, 1: 5000])
        // A queue that had jobs before gets no credit for the past.
        schedule.recordAnswer(1, received: 0, isDry: true)
        _ = run(&schedule, rounds: 1000, where: { $0 == 0 })
        let again = run(&schedule, rounds: 100)
        #expect(abs((again[0] ?? 0) - (again[1] ?? 0)) <= 100)
    }

    @Test("in strict order, leave nothing to the next one while they have work")
    func strict() {
        var schedule = QueueSchedule(weights: [1, 1000], isStrict: true)
        #expect(run(&schedule, rounds: 100) == [0: 10_000])
        #expect(run(&schedule, rounds: 100, where: { $0 == 1 }) == [1: 10_000])
        #expect(schedule.next({ _ in .unavailable }) == nil)
        // The second queue waits while it is unknown whether the first has more jobs.
        #expect(schedule.next({ $0 == 0 ? .asked : .ready }) == nil)
    }

    @Test("all have their share in any order of events", arguments: 0..<100)
    func anyOrder(seed: UInt64) {
        var random = SeededGenerator(seed: seed)
        let weights = (0..<Int.random(in: 1...5, using: &random)).map { _ in Int.random(in: 1...10, using: &random) }
        var schedule = QueueSchedule(weights: weights, isStrict: false)
        var asking: Set<Int> = []
        // At first some queues have jobs and others do not.
        for _ in 0..<500 {
            guard let next = schedule.next({ asking.contains($0) ? .asked : .ready }) else { continue }
            let received = Int.random(in: 0...256, using: &random)
            schedule.recordAnswer(next, received: received, isDry: received < 200)
        }
        // Then all have jobs; several are asked at once.
        var brought = Array(repeating: 0, count: weights.count)
        for _ in 0..<5000 {
            if asking.count < weights.count, Bool.random(using: &random),
                let next = schedule.next({ asking.contains($0) ? .asked : .ready })
            {
                asking.insert(next)
            } else if let done = asking.randomElement(using: &random) {
                asking.remove(done)
                let received = Int.random(in: 1...256, using: &random)
                schedule.recordAnswer(done, received: received, isDry: false)
                brought[done] += received
            }
        }
        #expect(brought.allSatisfy { $0 > 0 })
    }
}
