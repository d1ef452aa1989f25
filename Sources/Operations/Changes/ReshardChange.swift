import NIOCore
import PrintableText
import PushQueue
import Redis

/// Changes the number of shards of the set of invalid tokens, while no worker runs: copies the tokens to the next form, compares
/// the forms, and deletes the former one.
///
/// The record of the division says at any time which form has all tokens, and which one is incomplete. So after an interruption
/// the same change begins again with what is left, and a change back to the former number undoes it.
package struct ReshardInvalidTokens: Change {
    /// The time after which no other process relies on an earlier record: the validity of a reading, and a second for a call
    /// that is on its way.
    package static let pause = InvalidTokenSet.validity + .seconds(1)
    /// The number of shards that are counted at a time.
    private static let batch = 64

    package let action = AuditEntry.Action.reshardInvalidTokens
    private let shards: Int
    private let pause: TimeAmount

    /// - Parameter pause: shorter only where no other process is.
    package init(to shards: Int, pause: TimeAmount = pause) throws(FieldMistake) {
        guard TokenDivision.isNumberOfShards(shards) else {
            throw FieldMistake {
                "\($0("to")) must be a power of two from 1 to \(TokenDivision.maximumShards), such as 16; 1 is one set"
            }
        }
        (self.shards, self.pause) = (shards, pause)
    }

    private static func form(_ shards: Int) -> String { shards == 1 ? "one set" : "\(shards) shards" }

    private var state: String { shards == 1 ? "one set" : "divided into \(shards) shards" }

    // MARK: The plan

    package func plan(_ desk: Desk, _ progress: @Sendable (Int) -> Void) async throws -> ChangePlan {
        let client = try desk.invalid()
        let division = try await client.division()
        var plan = ChangePlan("\(Self.form(division.shards)) to \(Self.form(shards))")
        plan.verb = "copied"
        plan.rest = "workers wait until this is completed, or undone with --to \(division.shards)"
        plan.command = "Divide the set into \(Self.form(shards))"
        var part = ChangePart()
        if division == TokenDivision(shards: shards) {
            plan.isCounted = false
            plan.notes.append("the set is \(state) already")
        } else {
            plan.notes += try await checkWorkers(desk, plan.subject)
            plan.actsOnNothing = true
            if division.shards == shards, let change = division.change {
                let left = "what an interrupted change has left in \(Self.form(change.incomplete))"
                plan.notes.append("\(left) is deleted")
                plan.question = "Delete \(left)? All tokens are in \(Self.form(shards))."
            } else {
                part.count = try await contents(of: division.shards, client).tokens
                plan.question =
                    "Copy \(Words.count(part.count, "invalid token")) from \(Self.form(division.shards)) to "
                    + "\(Self.form(shards))? Workers that start in the meantime wait."
            }
        }
        part.sentence = Words.count(part.count, "token")
        plan.parts = [part]
        return plan
    }

    /// Refuses the change while a worker has a lease: it would send to invalid tokens, and wait to record others.
    /// - Returns: a note if there may be other queues.
    private func checkWorkers(_ desk: Desk, _ subject: String) async throws -> [String] {
        let queues = try await desk.fleet.queues()
        if let error = queues.unsearched {
            throw ChangeRefusal(.conflict, subject, "cannot search all servers for queues with workers: \(error)")
        }
        let readings = try await QueueReading.read(queues.keys, desk.fleet)
        for queue in readings.map(\.status) {
            guard let error = queue.error else { continue }
            throw ChangeRefusal(
                .conflict, subject, "cannot see whether queue \(queue.name.printable) has workers: \(error)")
        }
        let living = LaneSightings(readings.flatMap(\.lanes)).workers(unwritable: []).filter { $0.state != .gone }
        guard living.isEmpty else {
            let workers = living.map { worker in
                "\(worker.name) (queues \(worker.queues.joined(separator: ", ")), lease ends in \(Words.duration(worker.leaseLeftMs)))"
            }
            throw ChangeRefusal(
                .conflict, subject,
                "workers have leases: \(workers.joined(separator: ", ")). Stop all workers first: "
                    + "`\(desk.fleet.access.command(["stop", "--all"]))`")
        }
        return queues.incomplete.map { ["\($0); other queues may have workers, which must not run"] } ?? []
    }

    // MARK: The change

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
        func enter(_ shards: Int, incomplete: Int?) async throws {
            division = try await record(
                TokenDivision(shards: shards, change: incomplete.map { .init(incomplete: $0, since: since) }),
                after: division, client)
        }
        // This also ends an earlier attempt that still runs.
        try await enter(division.shards, incomplete: division.change?.incomplete ?? shards)
        control.phase("waiting for other processes")
        try await Task.sleep(for: .nanoseconds(pause.nanoseconds))
        control.phase("")
        if let left = division.change?.incomplete {
            // It has what an earlier attempt, or another program, has left there.
            try await delete(left, division, client)
        }
        let former = division.shards
        if former != shards {
            if division.change?.incomplete != shards {
                try await enter(former, incomplete: shards)
                try await delete(shards, division, client)
            }
            guard try await copy(division, client, control, &part) else {
                part.sentence = "copied \(Words.count(part.count, "token"))"
                return ChangeResult([part])
            }
            try await enter(shards, incomplete: former)
            try await delete(former, division, client)
        }
        try await enter(shards, incomplete: nil)
        part.sentence = "copied \(Words.count(part.count, "token")); the set is now \(state)"
        return ChangeResult([part])
    }

    /// Records the next state.
    private func record(
        _ next: TokenDivision, after former: TokenDivision, _ client: InvalidTokenClient
    ) async throws -> TokenDivision {
        guard try await client.call({ $0.record(next, after: former, completion: $1) }) == former else {
            throw overtaken
        }
        return next
    }

    /// Fails if another process has changed the record. Called before each part of the work.
    private func check(_ division: TokenDivision, _ client: InvalidTokenClient) async throws {
        guard try await client.division() == division else { throw overtaken }
    }

    private var overtaken: ChangeRefusal {
        ChangeRefusal(.conflict, Self.form(shards), "another process divides the set, too; try again when it has ended")
    }

    /// The keys of a form, and the numbers of its tokens and registrations.
    private struct Contents: Equatable {
        var keys: [InvalidTokenSet.Content] = []
        var tokens: Int { keys.reduce(0) { $0 + ($1.isSet ? $1.count : 0) } }
        var registrations: Int { keys.reduce(0) { $0 + ($1.isSet ? 0 : $1.count) } }

        static func == (one: Self, other: Self) -> Bool {
            (one.tokens, one.registrations) == (other.tokens, other.registrations)
        }
    }

    private func contents(of shards: Int, _ client: InvalidTokenClient) async throws -> Contents {
        var contents = Contents()
        for first in stride(from: 0, to: shards, by: Self.batch) {
            let range = first..<min(first + Self.batch, shards)
            contents.keys += try await client.call { $0.contents(of: range, among: shards, completion: $1) }
        }
        return contents
    }

    /// Deletes the shards of a form that have something.
    private func delete(_ shards: Int, _ division: TokenDivision, _ client: InvalidTokenClient) async throws {
        for shard in Set(try await contents(of: shards, client).keys.map(\.shard)).sorted() {
            try await check(division, client)
            try await client.call { $0.deleteShard(shard, of: shards, completion: $1) }
        }
    }

    /// Copies all tokens, and then the registrations: a token whose device has registered since is not added.
    /// - Returns: false if it was stopped.
    /// - Throws: ``ChangeRefusal`` if the forms differ then.
    private func copy(
        _ division: TokenDivision, _ client: InvalidTokenClient, _ control: ChangeControl, _ part: inout ChangePart
    ) async throws -> Bool {
        let contents = try await contents(of: division.shards, client)
        for content in contents.keys.filter(\.isSet) + contents.keys.filter({ !$0.isSet }) {
            var cursor = "0"
            repeat {
                if control.isStopped() { return false }
                try await check(division, client)
                let (next, found) = try await client.call { [cursor] in
                    $0.part(of: content, after: cursor, completion: $1)
                }
                cursor = next
                if content.isSet {
                    try await copyTokens(found, from: division.shards, client)
                    part.count += found.count
                    control.progress(part.count)
                } else {
                    try await copyRegistrations(found, client)
                }
            } while cursor != "0"
        }
        let (former, next) = (
            try await self.contents(of: division.shards, client), try await self.contents(of: shards, client)
        )
        guard former == next else {
            throw differs(
                "it has \(next.tokens) of \(former.tokens) tokens and \(next.registrations) of \(former.registrations) "
                    + "registrations")
        }
        return true
    }

    /// Copies tokens with their details, and reads them back.
    private func copyTokens(_ tokens: [ByteBuffer], from former: Int, _ client: InvalidTokenClient) async throws {
        let list = TokenList(tokens)
        let (shards, stored) = (shards, try await client.call { $0.form(changing: former).find(list, completion: $1) })
        _ = try await client.call { $0.form(changing: shards).add(stored, completion: $1) }
        let copied = try await client.call { $0.form(changing: shards).find(list, completion: $1) }
        let places = Set(zip(stored, copied).filter { $0 == $1 }.map(\.0.place))
        if let place = tokens.indices.first(where: { !places.contains($0) }) {
            throw differs(
                "\(String(buffer: tokens[place]).printable) is not a token, or another program has removed it")
        }
    }

    /// Copies registrations, each of which is a token and a time, and reads them back.
    private func copyRegistrations(_ pairs: [ByteBuffer], _ client: InvalidTokenClient) async throws {
        let registrations = stride(from: 0, to: pairs.count - 1, by: 2).map { (token: pairs[$0], at: pairs[$0 + 1]) }
        let copied = try await client.call { [shards] set, completion in
            set.copyRegistrations(registrations, to: set.form(changing: shards), completion: completion)
        }
        guard copied == registrations.map(\.at) else { throw differs("another program changes registrations") }
    }

    private func differs(_ difference: String) -> ChangeRefusal {
        ChangeRefusal(
            .conflict, Self.form(shards),
            "the copy in \(Self.form(shards)) differs from the set: \(difference). Repeat the command; until then workers wait"
        )
    }
}
