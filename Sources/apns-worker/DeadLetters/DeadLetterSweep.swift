import NIOCore
import PrintableText
import PushQueue
import Redis

/// Goes through a queue's dead letters, page by page, until there are no more, or enough, or the process is to end.
struct DeadLetterSweep {
    /// The progress so far.
    struct Tally {
        var looked = 0
        var chosen = 0
        var reasons: [String: Int] = [:]
        /// True if somebody ended it before its end.
        var isInterrupted = false

        /// Adds another queue's.
        mutating func add(_ other: Tally) {
            looked += other.looked
            chosen += other.chosen
            reasons.merge(other.reasons) { $0 + $1 }
            isInterrupted = isInterrupted || other.isInterrupted
        }

        /// Such as `12 BadPayload, 3 UnknownApp`.
        var byReason: String {
            reasons.sorted { ($1.value, $0.key) < ($0.value, $1.key) }
                .map { "\($0.value) \($0.key.printable)" }.joined(separator: ", ")
        }
    }

    let letters: DeadLetters
    let action: DeadLetters.Action
    let filter: DeadLetterFilter
    var limit: Int?
    var newestFirst = false
    var pace = RequeuePace(perSecond: nil)
    private(set) var tally = Tally()

    init(_ letters: DeadLetters, _ action: DeadLetters.Action, _ filter: DeadLetterFilter) {
        self.letters = letters
        self.action = action
        self.filter = filter
        // A key is one letter's, and who has found it need not look at the others.
        limit = filter.keys.isEmpty ? nil : Set(filter.keys).count
    }

    /// - Parameter page: gets what each page brought, and the sum so far.
    mutating func run(_ page: (DeadLetters.Page, Tally) throws -> Void = { _, _ in }) async throws {
        var cursor: String?
        repeat {
            let (portion, wait) = pace.portion(at: .now())
            if wait > .zero {
                // In pieces, so that an interruption is noticed.
                try await Task.sleep(for: .nanoseconds(min(wait.nanoseconds, 50_000_000)))
            } else {
                let rest = limit.map { $0 - tally.chosen } ?? .max
                let brought = try await letters.page(
                    action, filter, after: cursor, limit: min(rest, portion, 1_000_000_000), newestFirst: newestFirst)
                pace.moved(brought.chosen, at: .now())
                tally.looked += brought.looked
                tally.chosen += brought.chosen
                tally.reasons.merge(brought.reasons) { $0 + $1 }
                cursor = brought.cursor
                try page(brought, tally)
                if cursor == nil || limit.map({ tally.chosen >= $0 }) == true { return }
            }
            tally.isInterrupted = Interruption.hasCome
        } while !tally.isInterrupted
    }

    /// Counts letters.
    static func count(
        _ letters: DeadLetters, _ filter: DeadLetterFilter, limit: Int?, onlyReadable: Bool
    ) async throws -> Tally {
        var sweep = DeadLetterSweep(letters, .count(onlyReadable: onlyReadable), filter)
        sweep.lower(limit)
        try await sweep.run()
        return sweep.tally
    }

    /// Chooses no more than so many.
    mutating func lower(_ limit: Int?) {
        if let limit { self.limit = min(self.limit ?? limit, limit) }
    }

    /// Reports that nothing was found, and what there is.
    /// - Parameter changes: true for a command that was to change what it finds.
    /// - Returns: the exit status: 1 if the filter names one dead letter or a change was wanted, and nothing matches.
    static func tellOfNothing(
        _ queues: [DeadLetters], _ filter: DeadLetterFilter, changes: Bool = false
    ) async throws -> Int32 {
        var all = Tally()
        for letters in queues {
            all.add(try await count(letters, DeadLetterFilter(), limit: nil, onlyReadable: false))
        }
        let names = queues.map(\.queue.printable).joined(separator: ", ")
        let place = queues.count == 1 ? "queue \(names)" : "queues \(names)"
        if all.chosen == 0 {
            Terminal.tell("\(place) \(queues.count == 1 ? "has" : "have") no dead letters\n")
        } else {
            Terminal.tell("none of the \(all.chosen) dead letters of \(place) matches; there are \(all.byReason)\n")
        }
        let namesOne = !filter.ids.isEmpty || !filter.keys.isEmpty
        return namesOne || (changes && !filter.isEmpty) ? ExitStatus.attention.rawValue : 0
    }
}

extension DeadLetterSweep {
    /// Does it to the end, shows how far it is, and notes what was done, and what of Redis ended it too soon.
    mutating func run(into summary: inout DeadLetterSummary, _ progress: DeadLetterProgress) async throws {
        do {
            try await run { _, tally in progress.draw(tally.chosen) }
        } catch let error as RedisError {
            summary.error = CommandFailure(error)
        }
        progress.end()
        summary.tally = tally
    }
}
