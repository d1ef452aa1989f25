import Operations
import PrintableText
import PushQueue
import Redis

// Commands record this operator's actions, which the dashboard shows to others. A command that has done its work does
// not fail because its action could not be recorded.

extension Fleet {
    /// Records an action.
    func record(_ action: AuditEntry.Action, _ subject: String, count: Int? = nil, detail: String? = nil) async {
        await attemptToRecord {
            try await record(AuditEntry(action, subject, by: Person.name, count: count, detail: detail, via: .cli))
        }
    }
}

extension Settings {
    /// Records an action.
    func record(_ action: AuditEntry.Action, _ subject: String, count: Int? = nil, detail: String? = nil) async {
        let entry = AuditEntry(action, subject, by: Person.name, count: count, detail: detail, via: .cli)
        await attemptToRecord {
            try await withClient(for: sharedKeys.audit) { try await AuditLog.record(entry, $0, sharedKeys) }
        }
    }
}

private func attemptToRecord(_ body: () async throws -> Void) async {
    do {
        try await body()
    } catch {
        Terminal.note("note: this is done, but could not be recorded in the activity: \(error)\n")
    }
}

extension JobFilter {
    /// The filter as text for other operators, such as `state=retrying, app=shop`.
    var words: String {
        var parts = states.sorted().map { "state=\($0.rawValue)" }
        let sets: [(String, [String])] = [
            ("key", keys.sorted()), ("id", ids.sorted()), ("token", tokens.sorted()), ("app", apps.sorted()),
            ("topic", topics.sorted()), ("campaign", campaigns.sorted()), ("reason", reasons), ("match", texts),
        ]
        for (name, values) in sets { parts += values.prefix(5).map { "\(name)=\($0)" } }
        return Self.joined(parts, olderThan, newerThan)
    }

    fileprivate static func joined(_ parts: [String], _ older: Int64?, _ newer: Int64?) -> String {
        let ages = [older.map { "older_than=\($0)s" }, newer.map { "newer_than=\($0)s" }].compactMap(\.self)
        return parts.isEmpty && ages.isEmpty ? "all" : (parts + ages).joined(separator: ", ")
    }
}

extension DeadLetterFilter {
    /// The filter as text for other operators, such as `reason=BadPayload, app=shop`.
    var words: String {
        let lists = [
            ("reason", reasons), ("key", keys), ("id", ids), ("token", tokens), ("app", apps), ("campaign", campaigns),
            ("error", errors),
        ]
        return JobFilter.joined(
            lists.flatMap { name, values in values.prefix(5).map { "\(name)=\($0)" } }, olderThan, newerThan)
    }
}
