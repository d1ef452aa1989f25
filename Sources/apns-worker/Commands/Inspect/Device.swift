import APNS
import ArgumentParser
import NIOCore
import Operations
import PrintableText
import PushQueue
import Redis

struct Device: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "device",
        abstract: "Show, export or forget everything about a device token.",
        discussion: "`apns-worker device TOKEN` is `apns-worker device show TOKEN`.",
        subcommands: [DeviceShow.self, DeviceExportCommand.self, DeviceForget.self], defaultSubcommand: DeviceShow.self)
}

struct DeviceShow: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "show", abstract: "Show everything known about a device token.",
        discussion: """
            Shows if the token is invalid, since when and why; if APNs throttles it; its last registration; its results, newest \
            first; the jobs that wait for it; and its dead letters. Searches the newest 100,000 results of each queue, and all \
            jobs. Workers keep the results of failures, or with `results: all` of all notifications.

            Of a token that is shortened, as logs and pages show it, eight digits are enough: it must be the beginning of only \
            one of those in Redis.
            """)

    @OptionGroup(title: "Queues") var queue: QueueOptions

    @Argument(help: "Device token in hex or base64, or at least its first eight digits.") var token: String

    @Option(help: "Maximum number of results, of jobs and of dead letters.") var limit = 20

    @Flag(help: "Print a JSON object.") var json = false

    func validate() throws {
        try DeadLetterOptions.check(limit: limit)
        if beginning == nil { _ = try DeviceToken.hex(ofArgument: token) }
    }

    /// The search for the token, if only its beginning is given.
    private var beginning: TokenMatches? { TokenMatches(TokenMatches.digits(of: token)) }

    /// Returns the hex of the token: the argument, or the only token in Redis that begins with it.
    private func found(_ settings: Settings) async throws -> String {
        guard var matches = beginning else { return try DeviceToken.hex(ofArgument: token) }
        _ = try await QueueChoice.withEach(queue) { fleet, keys, _ in
            try await matches.search(fleet.jobs(of: keys), for: nil)
        }
        try await CommandRedis(settings).withInvalidTokens { try await matches.search($0, for: nil) }
        // The text may be a whole token, because a gateway's tokens can be shorter than Apple's.
        guard let only = matches.tokens.first else {
            if !TokenText.isShortened(token), TokenText.isToken(matches.beginning) { return matches.beginning }
            throw CommandFailure(.attention, "no token in Redis begins with \(matches.beginning); name the whole token")
        }
        guard matches.tokens.count == 1 else {
            let others = matches.isPartial ? ", and others" : ""
            throw CommandFailure(
                .attention,
                "these tokens begin with \(matches.beginning): \(matches.tokens.joined(separator: ", "))\(others)")
        }
        return only
    }

    func run() async throws {
        let settings = try queue.settings()
        let hex = try await found(settings)
        var findings = DeviceFindings(token: hex, now: Moment.now)
        try await FleetOptions.withFleet(settings, searches: false) { fleet in
            findings.record = try await DeviceRecord.read(hex, fleet)
        }
        let unread = try await QueueChoice.withEach(queue) { fleet, keys, _ in
            try await findings.search(fleet.jobs(of: keys), limit: limit)
        }
        if !unread.isEmpty { findings.isPartial = true }
        Terminal.print(json ? findings.json() + "\n" : findings.page)
        try unread.check()
    }
}

struct DeviceExportCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "export", abstract: "Print everything that Redis has about a device token, as JSON.",
        discussion: """
            Prints one object, whose members `apns-worker help json` describes. Unlike `apns-worker device show`, it searches \
            everything, and prints jobs as they are stored. Of a job of several tokens it prints only this one.
            """)

    @OptionGroup(title: "Queues") var queue: QueueOptions

    @Argument(help: "Device token, in hex or base64.") var token: String

    func validate() throws { _ = try DeviceToken.hex(ofArgument: token) }

    func run() async throws {
        var export = DeviceExport(try DeviceToken.hex(ofArgument: token))
        try await FleetOptions.withFleet(queue.settings(), searches: false) { try await export.read($0) }
        // Unlike a list, an export fails if a queue can't be read.
        try await QueueChoice.withListed(queue) { fleet, queues in
            for keys in queues { try await export.read(fleet.jobs(of: keys)) }
        }
        if export.large > 0 {
            Terminal.note("note: \(Words.count(export.large, "job")) beyond 16 MiB were not searched\n")
        }
        Terminal.print(export.json(isDetailed: true) + "\n")
    }
}

extension DeviceFindings {
    var page: String {
        var page = "TOKEN       \(token)\n"
        page += record.marks.isEmpty ? "invalid     no\n" : ""
        for mark in record.marks { page += "invalid     \(Self.text(mark, now: now))\n" }
        let throttled = record.throttledUntil.flatMap { $0 > now ? $0 : nil }
        page +=
            "throttled   " + (throttled.map { "until \(Moment.text($0)), \(Words.duration($0.since(now)))" } ?? "no")
            + "\n"
        page += "registered  "
        page +=
            (record.registeredAt.map { "\(Moment.text($0)), \(Moment.age(now.since($0))) ago" } ?? "not recorded")
            + "\n"
        page += "\nRESULTS  "
        if results.isEmpty {
            page += searched == 0 ? "none\n" : "none (\(Words.number(searched)) searched)\n"
        } else {
            let lines = results.map { ResultLine(queue: $0.queue, result: $0.result) }
            page += "\(results.count)\n" + Table.text(of: lines, now: now)
        }
        for gap in gaps { page += "note: \(gap)\n" }
        page += "\nJOBS  " + (jobs.isEmpty ? "none\n" : "\(jobs.count)\n" + Table.text(of: jobs, now: now))
        return page + "\nDEAD LETTERS  "
            + (dead.isEmpty ? "none\n" : "\(dead.count)\n" + Table.text(of: dead, now: now))
    }

    private static func text(_ mark: InvalidTokenSet.Listed, now: Int64) -> String {
        let details = mark.details
        let since = details.at.map { "since \(Moment.text($0)), \(Moment.age(now.since($0))) ago" } ?? "yes"
        let environment = details.environment.map { "at \(String(buffer: $0))" }
        let parts = [
            details.reason.map { String(buffer: $0) }, details.topic.map { "for \(String(buffer: $0))" }, environment,
            details.source.map { "reported by \(String(buffer: $0))" },
            mark.set.name.map { "in the set of \($0)" } ?? "only for this topic",
        ]
        let facts = parts.compactMap { $0 }.joined(separator: ", ").printable
        return facts.isEmpty ? since : "\(since): \(facts)"
    }
}
