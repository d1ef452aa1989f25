import ArgumentParser
import Operations
import PrintableText
import PushQueue
import Redis

/// The queues of commands for several queues.
enum QueueChoice {
    /// Runs `body` with the queues that a list shows: those named by flags, variables or the file, otherwise all in Redis.
    static func withListed<Result>(
        _ options: QueueOptions, _ body: (Fleet, [QueueKeys]) async throws -> Result
    ) async throws -> Result {
        let settings = try options.settings()
        return try await FleetOptions.withFleet(settings, searches: !settings.namesQueues) { fleet in
            try await body(fleet, fleet.notedQueues())
        }
    }

    /// Runs `body` for each queue of ``withListed(_:_:)``, with the number of queues. A queue that can't be read is reported on standard
    /// error, and the other queues are read nevertheless.
    /// - Returns: the queues that could not be read.
    /// - Throws: the first error if no queue could be read.
    static func withEach(
        _ options: QueueOptions, _ body: (Fleet, QueueKeys, _ count: Int) async throws -> Void
    ) async throws -> UnreadParts {
        try await withListed(options) { fleet, queues in
            var unread = UnreadParts()
            _ = try await unread.each(queues) { try await body(fleet, $0, queues.count) }
            unread.report()
            return unread
        }
    }

    /// Runs `body` with the queues that a command pauses or resumes. If the command names an app, there are no queues.
    static func withPaused(
        _ options: QueueOptions, app: String?, all: Bool, force: Bool,
        _ body: (Fleet, [QueueKeys]) async throws -> Void
    ) async throws {
        guard app != nil else {
            return try await withChanged(options, all: all, flag: "--all", force: force, body)
        }
        try await FleetOptions.withFleet(options.settings(), searches: true) { try await body($0, []) }
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
        let named = try QueueSettings(settings).all().map(\.keys)
        guard all || isFlag || named.count == 1 else {
            let names = named.map(\.queue).joined(separator: ",")
            throw ValidationError(
                "\(named.count) queues are configured: choose with --queue \(names), or pass \(flag)")
        }
        return try await FleetOptions.withFleet(settings, searches: all && !settings.namesQueues) { fleet in
            guard !all else { return try await body(fleet, fleet.notedQueues()) }
            if !force { try await Desk(fleet, named, settings).checkExistence(of: named) }
            return try await body(fleet, named)
        }
    }
}

extension UnreadParts {
    /// Reports the parts on standard error.
    func report() {
        for note in notes { Terminal.note(note + "\n") }
    }

    /// Ends the command with the exit status 1 if parts are unread. The other parts were printed.
    /// - Throws: `ExitCode`.
    func check() throws {
        if !isEmpty { throw ExitCode(ExitStatus.attention.rawValue) }
    }
}
