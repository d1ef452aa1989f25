import NIOCore
import PrintableText
import PushJob
import PushQueue
import Redis

package struct AddInvalidTokens: Change {
    package let action = AuditEntry.Action.addInvalidTokens
    private let tokens: [InvalidToken]
    private let reason: String

    package static let fields =
        [Field("tokens", isRequired: true), Field("reason"), Field("topic"), Field("environment"), Field("at")]

    /// - Parameters:
    ///   - environment: returns the stored name of a server's environment, such as `sandbox`.
    ///   - token: returns the hex of a device token; `nil` if it is not one.
    package init(
        _ fields: Fields, now: Int64, environment: (String) -> String, token: (String) -> String?
    ) throws(FieldMistake) {
        try fields.check(Self.fields)
        let template = try InvalidToken(imported: fields, now: now, environment: environment)
        reason = template.reason
        tokens = try fields.wholeTokens(token).map { hex in
            var invalid = template
            invalid.token = ByteBuffer(string: hex)
            return invalid
        }
    }

    package func plan(_ desk: Desk, _ progress: @Sendable (Int) -> Void) async throws -> ChangePlan {
        var plan = ChangePlan(tokens.count == 1 ? "token \(String(buffer: tokens[0].token))" : "\(tokens.count) tokens")
        (plan.detail, plan.actsOnNothing) = (reason, true)
        return plan
    }

    package func apply(_ plan: ChangePlan, _ desk: Desk, _ control: ChangeControl) async throws -> ChangeResult {
        var part = ChangePart()
        for (token, marking) in zip(tokens, try await desk.invalid().mark(tokens)) where marking == .added {
            part.count += 1
            part.changed.append(String(buffer: token.token))
        }
        part.sentence =
            "\(Words.count(tokens.count, "token")) \(tokens.count == 1 ? "is" : "are") in the set of invalid tokens"
        return ChangeResult([part])
    }
}

extension InvalidToken {
    /// Creates the members that imported tokens have in common: their reason, topic, environment and time.
    package init(imported fields: Fields, now: Int64, environment: (String) -> String) throws(FieldMistake) {
        let given = fields["at"].map { JobTime.milliseconds($0.trimmed) ?? 0 }
        if let given, given <= 0 || given > now {
            throw FieldMistake {
                "\($0("at")) must be a time in the past, such as 2026-11-21T08:00:00Z, or seconds since 1970"
            }
        }
        self.init(
            token: ByteBuffer(), at: given ?? now, reason: try fields.label("reason") ?? "Imported",
            topic: try fields.label("topic").map { ByteBuffer(string: $0) },
            environment: try fields.label("environment").map(environment), source: .imported)
    }
}

/// Removes tokens from the set of invalid tokens: the named tokens, or all that match a filter.
package struct RemoveInvalidTokens: Change {
    package let action = AuditEntry.Action.removeInvalidTokens
    private let named: [ByteBuffer]?
    private let filter: InvalidTokenFilter
    private let words: String

    package static let fields = InvalidTokenFilter.fields + [Field("token", .texts), Field.all]

    /// - Parameter now: durations count back from this time, in milliseconds since 1970.
    package init(_ fields: Fields, now: Int64) throws(FieldMistake) {
        try fields.check(Self.fields)
        filter = try InvalidTokenFilter(fields, now: now)
        var seen: Set<String> = []
        let tokens = try fields.tokens().map(TokenText.normalized).filter { seen.insert($0).inserted }
        named = tokens.isEmpty ? nil : tokens.map { ByteBuffer(string: $0) }
        if named != nil, !filter.isEmpty {
            throw FieldMistake { "\($0("token")) and filters cannot be combined" }
        }
        try fields.checkChoice("tokens", isEmpty: named == nil && filter.isEmpty, ["token", "topic", "reason"])
        words =
            tokens.count == 1
            ? "token \(tokens[0])"
            : tokens.isEmpty ? fields.words(InvalidTokenFilter.fieldNames) : "\(tokens.count) tokens"
    }

    /// The maximum number of tokens of one call.
    private static let batch = 500

    /// Returns the marks to remove. Without a filter, one mark of each token is enough to remove the token.
    private func chosen(_ found: [InvalidTokenSet.Listed]) -> [InvalidTokenSet.Listed] {
        guard filter.isEmpty else { return found }
        var seen: Set<ByteBuffer> = []
        return found.filter { seen.insert($0.token).inserted }
    }

    package func plan(_ desk: Desk, _ progress: @Sendable (Int) -> Void) async throws -> ChangePlan {
        let client = try desk.invalid()
        var (plan, part) = (ChangePlan(words), ChangePart())
        plan.verb = "removed"
        plan.at = try await desk.fleet.now()
        if let named {
            for batch in named.batches(of: Self.batch) {
                part.count += try await client.find(TokenList(batch)).count
                progress(part.count)
            }
        } else {
            try await client.sweep(filter) { found in
                let found = chosen(found)
                for token in found {
                    part.groups[token.details.reason.map { String(buffer: $0) } ?? "unknown", default: 0] += 1
                }
                part.count += found.count
                progress(part.count)
                return true
            }
        }
        part.sentence = Words.count(part.count, "token")
        plan.parts = [part]
        if plan.isEmpty { plan.notes.append("no token matches") }
        plan.command = "Remove \(Words.count(part.count, "token"))"
        plan.question =
            "Remove \(Words.count(part.count, "token")) from the set of invalid tokens? The reasons and times of removed "
            + "tokens are lost. This cannot be undone."
        return plan
    }

    package func apply(_ plan: ChangePlan, _ desk: Desk, _ control: ChangeControl) async throws -> ChangeResult {
        let client = try desk.invalid()
        var part = ChangePart()
        do {
            if let named {
                for batch in named.batches(of: Self.batch) where !control.isStopped() {
                    part.count += try await client.withdraw(batch)
                    control.progress(part.count)
                }
            } else {
                try await client.sweep(filter) { found in
                    // Tokens that were added after the count stay, unless their time is unknown.
                    let counted = chosen(found.filter { $0.details.at ?? 0 <= plan.at }).prefix(plan.count - part.count)
                    part.count += try await client.remove(
                        counted.map { mark in
                            .init(
                                mark.token, filter.isEmpty ? .all : .mark, environment: mark.details.environment,
                                topic: mark.details.topic)
                        })
                    control.progress(part.count)
                    return part.count < plan.count && !control.isStopped()
                }
            }
        } catch let error as any RedisFailure {
            if part.count == 0 { throw error }
            part.error = "\(error)"
        }
        part.sentence = "removed " + (part.error == nil ? "" : "at least ") + Words.count(part.count, "token")
        return ChangeResult([part], hasNoEffect: part.count == 0)
    }
}
