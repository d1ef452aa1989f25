import Glibc
import Operations
import PrintableText
import PushQueue
import Redis

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
}
