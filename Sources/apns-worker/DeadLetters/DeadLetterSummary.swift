import Glibc
import Operations
import PrintableText
import PushQueue
import Redis

/// A command's summary of its work on dead letters, printed at the end.
struct DeadLetterSummary {
    let queue: String
    /// `requeued` or `deleted`.
    let verb: String
    let isDryRun: Bool
    var tally = DeadLetterSweep.Tally()
    /// The error of Redis that ended the work early.
    var error: CommandFailure?

    /// The exit status, if the work ended early.
    var status: Int32? {
        if let error { return tally.chosen > 0 ? ExitStatus.attention.rawValue : error.status.rawValue }
        return tally.isInterrupted ? 130 : nil
    }

    func report(json: Bool) throws {
        if json {
            print(try object())
        } else if tally.chosen > 0 || status != nil {
            let letters = verb == "requeued" ? "job" : "dead letter"
            let count = "\(tally.chosen) \(letters)\(tally.chosen == 1 ? "" : "s")"
            print(
                (isDryRun ? "would have \(verb) " : "\(verb) ") + (error == nil ? "" : "at least ") + count
                    + " of queue \(queue)" + (tally.chosen > 0 ? ": \(tally.byReason)" : ""))
        }
        fflush(nil)
        if let error { Terminal.note("stopped by an error: \(error)\n") }
        if status != nil { Terminal.note("the others are still dead letters; repeat the command to continue\n") }
    }

    private struct Object: Encodable {
        let queue: String
        let action: String
        let count: Int
        let byReason: [String: Int]
        let looked: Int
        let dryRun: Bool
        let interrupted: Bool
        let error: String?

        enum CodingKeys: String, CodingKey {
            case queue, action, count, looked, interrupted, error
            case byReason = "by_reason"
            case dryRun = "dry_run"
        }
    }

    private func object() throws -> String {
        try JSONLine.text(
            Object(
                queue: queue, action: verb, count: tally.chosen, byReason: tally.reasons, looked: tally.looked,
                dryRun: isDryRun, interrupted: tally.isInterrupted, error: error?.message))
    }
}

/// The progress of a command, as one line on a terminal.
final class DeadLetterProgress {
    private let verb: String
    private let expected: Int?
    private let isShown: Bool
    private var last = ContinuousClock.now
    private var hasDrawn = false

    init(_ verb: String, of expected: Int?, isShown: Bool) {
        self.verb = verb
        self.expected = expected
        self.isShown = isShown && isatty(STDERR_FILENO) == 1
    }

    func draw(_ count: Int) {
        guard isShown, ContinuousClock.now - last > .milliseconds(100) else { return }
        (last, hasDrawn) = (.now, true)
        Terminal.note("\r\(verb) \(count)" + (expected.map { " of \($0)" } ?? "") + "\u{1B}[K")
    }

    /// Clears the line.
    func end() {
        if hasDrawn { Terminal.note("\r\u{1B}[K") }
    }
}

extension DeadLetterSweep {
    /// Reports that nothing was found, and what there is instead.
    /// - Parameter changes: true for a command that changes what it finds.
    /// - Returns: the exit status: 1 if nothing matches and the filter names one dead letter or a change was requested.
    static func reportNothing(
        _ queues: [DeadLetters], _ filter: DeadLetterFilter, changes: Bool = false
    ) async throws -> Int32 {
        var all = Tally()
        for letters in queues {
            all.add(try await count(letters, DeadLetterFilter(), limit: nil, onlyReadable: false))
        }
        let names = queues.map(\.queue.printable).joined(separator: ", ")
        let place = queues.count == 1 ? "queue \(names)" : "queues \(names)"
        if all.chosen == 0 {
            Terminal.note("\(place) \(queues.count == 1 ? "has" : "have") no dead letters\n")
        } else {
            Terminal.note("none of the \(all.chosen) dead letters of \(place) matches; there are \(all.byReason)\n")
        }
        let namesOne = !filter.ids.isEmpty || !filter.keys.isEmpty
        return namesOne || (changes && !filter.isEmpty) ? ExitStatus.attention.rawValue : 0
    }

    /// Runs the sweep, shows its progress, and records the result and the error of Redis that ended it, if any.
    mutating func run(into summary: inout DeadLetterSummary, _ progress: DeadLetterProgress) async throws {
        isInterrupted = { Interruption.isRequested }
        do {
            try await run { _, tally in progress.draw(tally.chosen) }
        } catch let error as RedisError {
            summary.error = CommandFailure(error)
        }
        progress.end()
        summary.tally = tally
    }
}
