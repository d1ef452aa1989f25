import NIOCore
import PushQueue
import Redis

/// Divides the set of invalid tokens into another number of shards, while workers use it. After an interruption, the
/// same change completes it.
package struct ReshardInvalidTokens: Change {
    package let action = AuditEntry.Action.reshardInvalidTokens
    private let shards: Int

    package init(to shards: Int) throws(FieldMistake) {
        guard TokenDivision.isNumberOfShards(shards) else {
            throw FieldMistake {
                "\($0("to")) must be a power of two from 1 to \(TokenDivision.maximumShards), such as 16; 1 is one set"
            }
        }
        self.shards = shards
    }

    /// Returns the number of shards of the form that a division leads to.
    private static func target(_ division: TokenDivision) -> Int {
        division.other.flatMap { $0.step == .copying ? $0.shards : nil } ?? division.shards
    }

    private static func form(_ shards: Int) -> String { shards == 1 ? "one set" : "\(shards) shards" }

    private var state: String { shards == 1 ? "one set" : "divided into \(shards) shards" }

    package func plan(_ desk: Desk, _ progress: @Sendable (Int) -> Void) async throws -> ChangePlan {
        let client = try desk.invalid()
        let division = try await client.division()
        var plan = ChangePlan("\(Self.form(division.shards)) to \(Self.form(shards))")
        if division.other != nil, Self.target(division) != shards {
            throw ChangeRefusal(
                .conflict, plan.subject,
                "the set is being divided into \(Self.form(Self.target(division))); finish that first, with --to \(Self.target(division))"
            )
        }
        var part = ChangePart(count: try await client.count())
        plan.verb = "copied"
        plan.rest = "until it is completed, workers write both forms, and read the former"
        plan.command = "Divide the set into \(Self.form(shards))"
        part.sentence = Words.count(part.count, "token")
        plan.parts = [part]
        if division.shards == shards, division.other == nil {
            plan.isCounted = false
            plan.notes.append("the set is \(state) already")
        } else {
            plan.actsOnNothing = true
            plan.question =
                "Copy \(Words.count(part.count, "invalid token")) from \(Self.form(division.shards)) to \(Self.form(shards))?"
        }
        return plan
    }

    package func apply(_ plan: ChangePlan, _ desk: Desk, _ control: ChangeControl) async throws -> ChangeResult {
        let client = try desk.invalid()
        var part = ChangePart()
        var division = try await client.division()
        if division.other == nil, division.shards == shards {
            part.sentence = "the set is \(state) already"
            return ChangeResult([part], hasNoEffect: true)
        }
        if division.other == nil || division.other?.step == .copying {
            // Each attempt is a step of its own, so that a former one, which may still run, copies nothing more.
            division = try await enter(
                TokenDivision(
                    generation: division.generation + 1, shards: division.shards, other: (shards, .copying)), client)
            // A former attempt can have copied tokens that were removed since.
            try await delete(client, shards)
            guard try await copy(division, client, control, &part) else {
                part.sentence = "copied \(Words.count(part.count, "token"))"
                return ChangeResult([part])
            }
            division = try await enter(
                TokenDivision(
                    generation: division.generation + 1, shards: shards, other: (division.shards, .switching)), client)
        } else {
            // The process that recorded it may have ended before all shards knew it.
            division = try await enter(division, client)
        }
        if let other = division.other, other.step == .switching {
            division = try await enter(
                TokenDivision(
                    generation: division.generation + 1, shards: division.shards, other: (other.shards, .deleting)),
                client)
        }
        if let other = division.other {
            try await delete(client, other.shards)
            division = try await enter(
                TokenDivision(generation: division.generation + 1, shards: division.shards), client)
        }
        part.sentence = "copied \(Words.count(part.count, "token")); the set is now \(state)"
        return ChangeResult([part])
    }

    /// Records a step.
    private func enter(_ division: TokenDivision, _ client: InvalidTokenClient) async throws -> TokenDivision {
        let recorded = try await client.call { $0.record(division, completion: $1) }
        guard recorded == division else { throw overtaken }
        return division
    }

    private var overtaken: ChangeRefusal {
        ChangeRefusal(.conflict, Self.form(shards), "another process divides the set, too; try again when it has ended")
    }

    /// Deletes the tokens and registrations of a form that is not read.
    private func delete(_ client: InvalidTokenClient, _ shards: Int) async throws {
        for index in 0..<shards {
            try await client.call { $0.deleteShard(index, of: shards, completion: $1) }
        }
    }

    /// Copies all registrations and tokens to the other form.
    /// - Returns: false if it was stopped.
    private func copy(
        _ division: TokenDivision, _ client: InvalidTokenClient, _ control: ChangeControl, _ part: inout ChangePart
    ) async throws -> Bool {
        let keys = try await client.call { set, completion in completion(.success(set.keys)) }
        for index in 0..<division.shards {
            let shard = keys.shard(index, of: division.shards)
            // Registrations first, so that no token is added whose device has registered since.
            for (key, isSet) in shard.registrationHashes.map({ ($0, false) }) + shard.sets.map({ ($0, true) }) {
                var cursor = "0"
                repeat {
                    if control.isStopped() { return false }
                    let page = try await copyPage(of: key, isSet: isSet, after: cursor, division, client)
                    cursor = page.cursor
                    part.count += page.tokens
                    control.progress(part.count)
                } while cursor != "0"
            }
        }
        return true
    }

    private func copyPage(
        of key: String, isSet: Bool, after cursor: String, _ division: TokenDivision, _ client: InvalidTokenClient
    ) async throws -> InvalidTokenSet.Copied {
        do {
            return try await client.call { set, completion in
                if isSet {
                    set.copyTokens(key, after: cursor, division, completion: completion)
                } else {
                    set.copyRegistrations(key, after: cursor, division, completion: completion)
                }
            }
        } catch {
            if TokenDivision(refusal: error) != nil { throw overtaken }
            throw error
        }
    }
}
