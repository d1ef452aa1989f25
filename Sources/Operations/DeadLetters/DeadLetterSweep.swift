import NIOCore
import PrintableText
import PushQueue
import Redis

/// Processes a queue's dead letters page by page, until there are no more, the limit is reached, or it is interrupted.
package struct DeadLetterSweep {
    package struct Tally {
        package var looked = 0
        package var chosen = 0
        package var reasons: [String: Int] = [:]
        package var isInterrupted = false
    }

    private let letters: DeadLetters
    private let action: DeadLetters.Action
    private let filter: DeadLetterFilter
    private var limit: Int?
    package var newestFirst = false
    package var pace = RequeuePace(perSecond: nil)
    /// Returns true to end the sweep early.
    package var isInterrupted: @Sendable () -> Bool = { false }
    package private(set) var tally = Tally()

    package init(_ letters: DeadLetters, _ action: DeadLetters.Action, _ filter: DeadLetterFilter) {
        self.letters = letters
        self.action = action
        self.filter = filter
        // A key belongs to one dead letter, so the search can end once it is found.
        limit = filter.keys.isEmpty ? nil : Set(filter.keys).count
    }

    /// - Parameter page: gets each page, and the tally so far.
    package mutating func run(_ page: (DeadLetters.Page, Tally) throws -> Void = { _, _ in }) async throws {
        var cursor: String?
        repeat {
            if case .count = action { try Task.checkCancellation() }
            let portion = try await pace.wait(isInterrupted)
            if portion > 0 {
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
            tally.isInterrupted = isInterrupted()
        } while !tally.isInterrupted
    }

    package static func count(_ letters: DeadLetters, _ filter: DeadLetterFilter) async throws -> Tally {
        var sweep = DeadLetterSweep(letters, .count(onlyReadable: false), filter)
        try await sweep.run()
        return sweep.tally
    }

    /// Returns the sentence that no dead letter of some queues matches, with the number of dead letters by reason.
    package static func nothingFound(in queues: [DeadLetters]) async throws -> String {
        var reasons: [String: Int] = [:]
        for letters in queues {
            reasons.merge(try await count(letters, DeadLetterFilter()).reasons) { $0 + $1 }
        }
        let (place, all) = (queues.map(\.keys).inWords, reasons.values.reduce(0, +))
        return all == 0
            ? "\(place) \(queues.count == 1 ? "has" : "have") no dead letters"
            : "none of the \(Words.number(all)) dead letters of \(place) matches; there are \(Words.groups(reasons))"
    }

    /// Lowers the limit to this number, if the limit is higher.
    package mutating func lower(_ limit: Int?) {
        if let limit { self.limit = min(self.limit ?? limit, limit) }
    }
}
