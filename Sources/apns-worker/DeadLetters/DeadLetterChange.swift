import ArgumentParser
import Operations
import PushQueue
import Redis

/// The work of a command that changes the dead letters of its queues.
struct DeadLetterChange {
    let fleet: Fleet
    let letters: [DeadLetters]
    let filter: DeadLetterFilter
    let action: DeadLetters.Action
    /// `requeued` or `deleted`.
    let verb: String
    let limit: Int?
    let isJSON: Bool

    private var onlyReadable: Bool { action != .delete }

    /// Connects to the servers of the queues.
    init(
        _ fleet: Fleet, _ queues: [QueueKeys], _ filter: DeadLetterFilter, _ action: DeadLetters.Action, verb: String,
        limit: Int?, json: Bool
    ) async throws {
        var letters: [DeadLetters] = []
        for keys in queues { letters.append(DeadLetters(try await fleet.client(for: keys.dead), keys)) }
        self.fleet = fleet
        self.letters = letters
        self.filter = filter
        self.action = action
        self.verb = verb
        self.limit = limit
        isJSON = json
    }

    /// The names of the queues, for a question.
    var queues: String { letters.map(\.queue).joined(separator: ", ") }

    /// Counts the dead letters that would be changed, by queue.
    func count() async throws -> [DeadLetterSweep.Tally] {
        var (tallies, left) = ([DeadLetterSweep.Tally](), limit)
        for letters in letters {
            guard left.map({ $0 > 0 }) ?? true else { break }
            let tally = try await DeadLetterSweep.count(letters, filter, limit: left, onlyReadable: onlyReadable)
            tallies.append(tally)
            left = left.map { $0 - tally.chosen }
        }
        return tallies
    }

    /// Returns the sum of tallies.
    static func sum(_ tallies: [DeadLetterSweep.Tally]) -> DeadLetterSweep.Tally {
        tallies.reduce(into: DeadLetterSweep.Tally()) { $0.add($1) }
    }

    /// Reports the dead letters that would be changed.
    func report(dryRun tallies: [DeadLetterSweep.Tally], isDryRun: Bool) async throws {
        for (letters, tally) in zip(letters, tallies) {
            var summary = DeadLetterSummary(queue: letters.queue, verb: verb, isDryRun: isDryRun)
            summary.tally = tally
            try summary.report(json: isJSON)
        }
        try await end(Self.sum(tallies))
    }

    /// Changes the dead letters, and reports the result.
    /// - Parameter expected: the counts by queue; dead letters added since are not changed. `nil` if they were not
    ///   counted.
    func run(expecting expected: [DeadLetterSweep.Tally]?, pace: RequeuePace = RequeuePace(perSecond: nil)) async throws
    {
        Interruption.watch()
        var sum = DeadLetterSweep.Tally()
        for (index, letters) in letters.enumerated() {
            let most = expected.map { index < $0.count ? $0[index].chosen : 0 } ?? limit.map { $0 - sum.chosen }
            guard most.map({ $0 > 0 }) ?? true else { continue }
            var summary = DeadLetterSummary(queue: letters.queue, verb: verb, isDryRun: false)
            var sweep = DeadLetterSweep(letters, action, filter)
            sweep.lower(most)
            sweep.pace = pace
            let progress = DeadLetterProgress(verb, of: expected.map { $0[index].chosen }, isShown: !isJSON)
            try await sweep.run(into: &summary, progress)
            if summary.tally.chosen > 0 {
                await fleet.record(
                    action == .delete ? .deleteDeadLetters : .requeue, "queue \(letters.queue), \(filter.words)",
                    count: summary.tally.chosen)
            }
            try summary.report(json: isJSON)
            if let status = summary.status { throw ExitCode(status) }
            sum.add(summary.tally)
        }
        try await end(sum)
    }

    private func end(_ sum: DeadLetterSweep.Tally) async throws {
        guard sum.chosen == 0 else { return }
        let status = try await DeadLetterSweep.reportNothing(letters, filter, changes: true)
        if status != 0 { throw ExitCode(status) }
    }
}
