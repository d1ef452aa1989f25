import ArgumentParser
import Operations
import PrintableText
import PushQueue
import Redis

/// The queues of commands for several queues.
enum QueueChoice {
    /// Runs `body` with the queues that a list shows: those named by flags, variables or the file, otherwise all in
    /// Redis.
    static func withListed<Result>(
        _ options: QueueOptions, _ body: (Fleet, [QueueKeys]) async throws -> Result
    ) async throws -> Result {
        let settings = try options.settings()
        return try await FleetOptions.withFleet(settings, searches: !settings.namesQueues) { fleet in
            try await body(fleet, configuredQueues(fleet, settings))
        }
    }

    /// Runs `body` with the queues that a command changes: those of `--queue`, the only configured one, or all.
    /// - Parameters:
    ///   - all: true for all queues.
    ///   - flag: the flag for all queues.
    ///   - force: true if the queues need not exist.
    /// - Throws: a usage error if it is not clear which queues are meant.
    static func withChanged<Result>(
        _ options: QueueOptions, all: Bool, flag: String = "--all-queues", force: Bool = false,
        _ body: (Fleet, [QueueKeys]) async throws -> Result
    ) async throws -> Result {
        let settings = try options.settings()
        let isFlag = options.given[.queueNames] != nil
        if all, isFlag { throw ValidationError("--queue and \(flag) cannot be combined") }
        let named = try settings.queues().map(\.keys)
        guard all || isFlag || named.count == 1 else {
            let names = named.map(\.queue).joined(separator: ",")
            throw ValidationError(
                "\(named.count) queues are configured: choose with --queue \(names), or pass \(flag)")
        }
        return try await FleetOptions.withFleet(settings, searches: all && !settings.namesQueues) { fleet in
            guard !all else { return try await body(fleet, configuredQueues(fleet, settings)) }
            if !force { try await checkExistence(of: named, in: fleet, configured: settings.configuredQueueNames) }
            return try await body(fleet, named)
        }
    }

    /// Returns the existing queues, with the lists of jobs named by settings.
    private static func configuredQueues(_ fleet: Fleet, _ settings: Settings) async throws -> [QueueKeys] {
        let (keys, incomplete) = try await fleet.queues()
        if let incomplete { Terminal.note("note: \(incomplete)\n") }
        return keys.map { found in
            fleet.named.first { $0.queue == found.queue } ?? (try? settings.keys(of: found.queue, isOnly: false))
                ?? found
        }
    }

    /// Checks that queues are in the configuration or in Redis.
    /// - Throws: ``CommandFailure`` with a suggestion. Does not throw if Redis has no queue at all.
    static func checkExistence(
        of queues: [QueueKeys], in fleet: Fleet, configured: [String], hint: String = " --force continues anyway"
    ) async throws {
        for keys in queues where !configured.contains(keys.queue) {
            let overview = try await QueueOverview.read(fleet.client(for: keys.retry), keys)
            guard overview.isEmpty else { continue }
            let known = Set(try await fleet.search().names).union(configured).subtracting([keys.queue]).sorted()
            guard !known.isEmpty else { return }
            throw CommandFailure(.attention, Self.unknown("queue", keys.queue, known) + hint)
        }
    }

    /// Returns the message about an unknown name.
    static func unknown(_ what: String, _ name: String, _ known: [String]) -> String {
        let meant = name.nearest(of: known).map { "; did you mean \($0.printable)?" } ?? ";"
        let shown = known.prefix(20).map(\.printable).joined(separator: ", ") + (known.count > 20 ? ", …" : "")
        return "unknown \(what) \(name.printable)\(meant) Known: \(shown)."
    }
}

extension QueueOverview {
    /// True if Redis has no key of the queue.
    fileprivate var isEmpty: Bool { waiting + due + later + dead + workerCount == 0 && pause == nil }
}
