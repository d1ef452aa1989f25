import Glibc
import PushQueue

/// A command's summary of its work on dead letters, printed when it ends.
struct DeadLetterSummary {
    let queue: String
    /// `requeued` or `deleted`.
    let verb: String
    let isDryRun: Bool
    var tally = DeadLetterSweep.Tally()
    /// The error of Redis that ended the work too early.
    var error: CommandFailure?

    /// The exit status, if the work ended too early.
    var status: Int32? {
        if let error { return tally.chosen > 0 ? ExitStatus.attention.rawValue : error.status.rawValue }
        return tally.isInterrupted ? 130 : nil
    }

    func tell(json: Bool) throws {
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
        if let error { Terminal.tell("then it ended: \(error)\n") }
        if status != nil { Terminal.tell("the others are still dead letters; repeat the command to continue\n") }
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

/// How far a command has come, in one line of a terminal.
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
        Terminal.tell("\r\(verb) \(count)" + (expected.map { " of \($0)" } ?? "") + "\u{1B}[K")
    }

    /// Leaves an empty line behind.
    func end() {
        if hasDrawn { Terminal.tell("\r\u{1B}[K") }
    }
}
