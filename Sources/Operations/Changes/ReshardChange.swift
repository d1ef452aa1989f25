import NIOCore
import PushQueue
import Redis

/// Changes the number of shards of the set of invalid tokens, while no worker runs. A form of the set is one set, or a number of shards.
/// The change copies the tokens to the next form, compares the forms, and deletes the former one.
///
/// The record of the division names the form that has all tokens and the incomplete one. So after an interruption the same
/// change begins again, and a change back to the former number undoes it.
package struct ReshardInvalidTokens: Change {
    /// The time after which no other process relies on an earlier record: the validity of a reading, plus one second for calls in flight.
    package static let pause = InvalidTokenSet.validity + .seconds(1)
    /// The number of shards that are counted at a time.
    private static let batch = 64

    package let action = AuditEntry.Action.reshardInvalidTokens
    private let shards: Int
    private let pause: TimeAmount

    /// - Parameter pause: a shorter time is safe only if no other process uses the set.
    package init(to shards: Int, pause: TimeAmount = pause) throws(FieldMistake) {
        guard TokenDivision.isNumberOfShards(shards) else {
            throw FieldMistake {
                "\($0("to")) must be a power of two from 1 to \(TokenDivision.maximumShards), such as 16; 1 means one set"
            }
        }
        (self.shards, self.pause) = (shards, pause)
    }

    private static func form(_ shards: Int) -> String { shards == 1 ? "one set" : "\(shards) shards" }

    private var state: String { shards == 1 ? "one set" : "divided into \(shards) shards" }

    package func plan(_ desk: Desk, _ progress: @Sendable (Int) -> Void) async throws -> ChangePlan {
        let client = try desk.invalid()
        let division = try await client.division()
        var plan = ChangePlan("\(Self.form(division.shards)) to \(Self.form(shards))")
        var part = ChangePart()
        plan.verb = "copied"
        plan.rest = "workers wait until this is completed, or undone with --to \(division.shards)"
        plan.command = "Divide the set into \(Self.form(shards))"
        if division == TokenDivision(shards: shards) {
            plan.isCounted = false
            plan.notes.append("the set is \(state) already")
        } else {
            plan.notes += try await checkWorkers(desk, plan.subject)
            plan.actsOnNothing = true
            part.count = division.shards == shards ? 0 : try await client.count(among: division.shards)
            plan.question =
                division.shards == shards
                ? "Delete the incomplete copy that was interrupted?"
                : "Copy \(Words.count(part.count, "invalid token")) from \(Self.form(division.shards)) to "
                    + "\(Self.form(shards))? Workers that start in the meantime wait."
        }
        part.sentence = Words.count(part.count, "token")
        plan.parts = [part]
        return plan
    }

    /// Refuses the change while a worker has a lease, because that worker could not look up tokens.
    /// - Returns: a note if there may be other queues.
    private func checkWorkers(_ desk: Desk, _ subject: String) async throws -> [String] {
        let queues = try await desk.fleet.queues()
        let status = try await StatusReader(desk.fleet).read(queues)
        if let error = status.searchError ?? status.queues.lazy.compactMap(\.error).first {
            throw ChangeRefusal(.conflict, subject, "a queue that cannot be read may have workers: \(error)")
        }
        guard status.living.isEmpty else {
            let workers = status.living.map { "\($0.name) (queues \($0.queues.joined(separator: ", ")))" }
            throw ChangeRefusal(
                .conflict, subject,
                "workers have leases: \(workers.joined(separator: ", ")). Stop all workers first: "
                    + "`\(desk.fleet.access.command(["stop", "--all"]))`")
        }
        return queues.incomplete.map { ["\($0); no worker of the other queues may run either"] } ?? []
    }

    package func apply(_ plan: ChangePlan, _ desk: Desk, _ control: ChangeControl) async throws -> ChangeResult {
        let client = try desk.invalid()
        var part = ChangePart()
        var division = try await client.division()
        if division == TokenDivision(shards: shards) {
            part.sentence = "the set is \(state) already"
            return ChangeResult([part], hasNoEffect: true)
        }
        _ = try await checkWorkers(desk, plan.subject)
        let since = try await desk.fleet.now()
        func record(_ shards: Int, incomplete: Int?) async throws {
            let next = TokenDivision(shards: shards, incomplete: incomplete, since: since)
            let former = try await client.call { [division] in $0.record(next, after: division, completion: $1) }
            guard former == division else { throw overtaken }
            division = next
        }
        // The new record ends an earlier attempt that still runs, and makes all other processes stop using the set.
        let former = division.shards
        let left = division.incomplete ?? shards
        try await record(former, incomplete: left)
        control.phase("waiting for other processes")
        try await Task.sleep(for: .nanoseconds(pause.nanoseconds))
        control.phase("")
        try await delete(left, division, client)
        if former != shards {
            if left != shards {
                try await record(former, incomplete: shards)
                try await delete(shards, division, client)
            }
            guard try await copy(division, client, control, &part) else {
                part.sentence = "copied \(Words.count(part.count, "token"))"
                return ChangeResult([part])
            }
            try await record(shards, incomplete: former)
            try await delete(former, division, client)
        }
        try await record(shards, incomplete: nil)
        part.sentence = "copied \(Words.count(part.count, "token")); the set is now \(state)"
        return ChangeResult([part])
    }

    private var overtaken: ChangeRefusal {
        ChangeRefusal(
            .conflict, Self.form(shards), "another process changes the number of shards; try again when it has ended")
    }

    /// Fails if another process has changed the record. Called before each part of the work.
    private func check(_ division: TokenDivision, _ client: InvalidTokenClient) async throws {
        guard try await client.division() == division else { throw overtaken }
    }

    /// Returns the keys of a form that have tokens or registrations.
    private func contents(of shards: Int, _ client: InvalidTokenClient) async throws -> [InvalidTokenSet.Content] {
        var contents: [InvalidTokenSet.Content] = []
        for first in stride(from: 0, to: shards, by: Self.batch) {
            let range = first..<min(first + Self.batch, shards)
            contents += try await client.call { $0.contents(of: range, among: shards, completion: $1) }
        }
        return contents
    }

    /// Deletes a form. An interrupted attempt or another program may have left tokens in it.
    private func delete(_ shards: Int, _ division: TokenDivision, _ client: InvalidTokenClient) async throws {
        for shard in Set(try await contents(of: shards, client).map(\.shard)).sorted() {
            try await check(division, client)
            try await client.call { $0.deleteShard(shard, of: shards, completion: $1) }
        }
    }

    /// Copies all tokens, and then the registrations. In the opposite order, tokens of devices with a later registration would be missing.
    /// - Returns: false if it was stopped.
    /// - Throws: ``ChangeRefusal`` if the forms differ afterwards.
    private func copy(
        _ division: TokenDivision, _ client: InvalidTokenClient, _ control: ChangeControl, _ part: inout ChangePart
    ) async throws -> Bool {
        let former = try await contents(of: division.shards, client)
        for content in former.filter(\.isSet) + former.filter({ !$0.isSet }) {
            var cursor = "0"
            repeat {
                if control.isStopped() { return false }
                try await check(division, client)
                let copied = try await client.call { [cursor, shards] in
                    $0.copy(content, after: cursor, from: division.shards, to: shards, completion: $1)
                }
                cursor = copied.cursor
                part.count += copied.tokens
                control.progress(part.count)
            } while cursor != "0"
        }
        let (all, copied) = (try await contents(of: division.shards, client), try await contents(of: shards, client))
        for (isSet, things) in [(true, "tokens"), (false, "registrations")] {
            let numbers = [all, copied].map { $0.reduce(0) { $0 + ($1.isSet == isSet ? $1.count : 0) } }
            guard numbers[0] == numbers[1] else {
                throw ChangeRefusal(
                    .conflict, Self.form(shards),
                    "the copy has \(numbers[1]) of \(numbers[0]) \(things): another program changes the set, or a member is "
                        + "not a token. Repeat the command; until then workers wait")
            }
        }
        return true
    }
}
