import ArgumentParser
import FoundationEssentials
import Glibc
import Operations
import PrintableText
import PushQueue
import PushWorker
import Redis

// Commands record this operator's actions, which the dashboard shows to others. A command that has done its work does
// not fail because its action could not be recorded.

extension Fleet {
    /// Records an action.
    func record(_ action: AuditEntry.Action, _ subject: String, count: Int? = nil, detail: String? = nil) async {
        await AuditEntry.attempt {
            try await record(AuditEntry(action, subject, by: Person.name, count: count, detail: detail, via: .cli))
        }
    }
}

extension AuditEntry {
    /// Runs the write of an entry, and only reports a failure.
    static func attempt(_ write: () async throws -> Void) async {
        do {
            try await write()
        } catch {
            Terminal.note("note: this is done, but could not be recorded in the activity: \(error)\n")
        }
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

/// The operator who runs this command.
enum Person {
    /// Checks the reason that an operator gives to others.
    static func check(reason: String?) throws {
        if let problem = reason.flatMap(OperatorText.problem(ofReason:)) {
            throw ValidationError("--reason \(problem)")
        }
    }

    /// The system's name for the user; in a container there may be none.
    private static var account: String? {
        guard let entry = getpwuid(getuid()), let name = entry.pointee.pw_name else { return nil }
        return String(cString: name)
    }

    /// The names of the user and the host, as far as they are available.
    static var name: String {
        let environment = ProcessInfo.processInfo.environment
        let user = ["SUDO_USER", "USER", "LOGNAME"].compactMap { environment[$0] }.first { !$0.isEmpty }
        return "\(user ?? account ?? "uid \(getuid())")@\(HostName.current)".printable
    }
}
