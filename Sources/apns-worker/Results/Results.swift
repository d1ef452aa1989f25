import ArgumentParser
import NIOCore
import Operations
import PushQueue
import Redis
import Telemetry

struct Results: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "results",
        abstract: "Show delivery results, or hand them to a command or a URL.",
        discussion: """
            Workers keep the results of notifications that were not delivered; with `results: all` (APNS_WORKER_RESULTS), of \
            all. Device tokens are shortened, except in JSON. Without --queue the results of all queues are shown.

              apns-worker results --token 00fc13ad… --newest-first
              apns-worker results --campaign spring-sale --outcome dead --since 1h
              apns-worker results --since 1h --by app,reason

            With --exec or --webhook, results are handed over as they arrive, each at least once, also after a crash. `queue` and \
            `entry` of a result identify it. A new group begins with the next result, or with those since --since. Results that \
            are not accepted are retried; one that alone is never accepted is parked. Only queues that exist are watched; name \
            others with --queue.

              apns-worker results --webhook https://example.com/hooks/push --webhook-secret-file secret.txt
              apns-worker results --exec 'jq -r .id >> failed.txt' --outcome dead
            """)

    @OptionGroup(title: "Redis") var fleet: FleetOptions

    @OptionGroup(title: "Filters") var options: ResultOptions

    @Option(help: "Maximum number of results.") var limit: Int?

    @Flag(help: "Print the number of results.") var count = false

    @Option(
        help: "Count by \(ResultLine.groupsInWords), or several, such as outcome,app.",
        transform: Counts<ResultLine>.names)
    var by: [String]?

    @Flag(help: "Show the newest results first.") var newestFirst = false

    @Flag(help: "Continue with new results until interrupted.") var follow = false

    @Flag(help: "Print one JSON object per line.") var json = false

    @OptionGroup(title: "Callbacks") var callbacks: CallbackOptions

    func validate() throws {
        try DeadLetterOptions.check(limit: limit)
        if follow, newestFirst { throw ValidationError("--follow and --newest-first cannot be combined") }
        if follow, options.until != nil { throw ValidationError("--follow and --until cannot be combined") }
        let counts = count || by != nil
        if counts, follow || limit != nil {
            throw ValidationError("--count and --by cannot be combined with --follow and --limit")
        }
        guard callbacks.isOn else { return }
        let others = [
            ("count", count), ("by", by != nil),
            ("limit", limit != nil), ("newest-first", newestFirst), ("follow", follow), ("json", json),
            ("until", options.until != nil),
        ]
        if let (name, _) = others.first(where: \.1) {
            throw ValidationError("--\(name) cannot be combined with --exec and --webhook")
        }
    }

    func run() async throws {
        if callbacks.isOn { return try await handOver() }
        let (found, unread) = try await fleet.withFleet { fleet in
            var unread = UnreadParts()
            let queues = try await unread.each(fleet.notedQueues()) { keys in
                Queue(
                    keys: keys, client: try await fleet.client(for: keys.results),
                    kept: try await fleet.queue(keys, ignoresSettings: true).resultsKept)
            }
            return try await show(queues, unread)
        }
        try unread.check()
        if found == 0, try options.filter().namesOne { throw ExitCode(1) }
    }

    // MARK: Showing

    private struct Queue {
        let keys: QueueKeys
        let client: RedisClient
        let kept: ResultsKept?
    }

    /// - Parameter unread: the queues that have no client.
    /// - Returns: the number of results shown, and the queues that could not be read.
    private func show(
        _ queues: [Queue], _ unread: UnreadParts
    ) async throws -> (found: Int, unread: UnreadParts) {
        let now = try await Self.now(queues)
        let period = try options.period(now: now)
        var search = ResultSearch(
            queues.map { ($0.keys, $0.client) }, since: period.since, until: period.until, newestFirst: newestFirst,
            unread: unread)
        let namesQueue = queues.count + unread.names.count > 1
        let (filter, output) = (try options.filter(), ByteOutput.standard)
        var counts = count || by != nil ? Counts<ResultLine>(by: by ?? []) : nil
        var (shown, reported) = (0, 0)
        while shown < limit ?? .max {
            guard let line = try await search.next() else {
                guard follow else { break }
                try output.flush()
                // Each queue is reported once.
                for note in search.unread.notes.dropFirst(reported) { Terminal.note(note + "\n") }
                reported = search.unread.notes.count
                try await search.waitForMore()
                continue
            }
            guard filter.matches(line.result) else { continue }
            shown += 1
            guard counts == nil else {
                counts?.add(line)
                continue
            }
            if json {
                var text = ByteBuffer()
                line.writeJSON(to: &text)
                text.writeString("\n")
                try output.write(text)
            } else {
                try output.write(line.text(namesQueue: namesQueue) + "\n")
            }
        }
        counts?.print(isJSON: json)
        try output.flush()
        for note in search.unread.notes.dropFirst(reported) { Terminal.note(note + "\n") }
        if shown == 0 { reportNone(search.searched, queues, isFiltered: !filter.isEmpty) }
        return (shown, search.unread)
    }

    /// Reports that nothing was found, and which results the queues do not keep.
    private func reportNone(_ searched: Int, _ queues: [Queue], isFiltered: Bool) {
        let place = queues.count == 1 ? "queue \(queues[0].keys.queue)" : "\(queues.count) queues"
        let isAnyWanted = !isFiltered && options.since == nil && options.until == nil
        Terminal.note(
            searched == 0 && isAnyWanted
                ? "\(place) \(queues.count == 1 ? "has" : "have") no results\n"
                : "no results match (\(Words.number(searched)) searched in \(place))\n")
        let kept = Dictionary(uniqueKeysWithValues: queues.map { ($0.keys.queue, $0.kept) })
        for gap in ResultsKept.gaps(kept) { Terminal.note("note: \(gap)\n") }
    }

    /// Returns the time of Redis, whose clock names the entries, in milliseconds since 1970.
    private static func now(_ queues: [Queue]) async throws -> Int64 {
        guard let client = queues.first?.client else { return Moment.now }
        return try await client.time()
    }

    // MARK: Callbacks

    private func handOver() async throws {
        let settings = try fleet.settings()
        let stop = StopSignal()
        let receiver = try callbacks.receiver(stop)
        let (limits, consumer, group) = (try callbacks.limits(), callbacks.consumerName, callbacks.group ?? "callbacks")
        let (filter, since) = (try options.filter(), try options.period(now: Moment.now).since)
        let queues = try await fleet.withFleet { try await $0.queues().keys }
        Interruption.watch()
        let watch = Task {
            while !Interruption.isRequested, !Task.isCancelled { try await Task.sleep(for: .milliseconds(50)) }
            stop.stop()
        }
        defer { watch.cancel() }
        for keys in queues {
            Terminal.note("queue \(keys.queue): handing results to \(receiver), group \(group), consumer \(consumer)\n")
        }
        let endings = try await withThrowingTaskGroup(of: ResultDelivery.Ending.self) { tasks in
            for keys in queues {
                tasks.addTask {
                    // A separate connection, because reading blocks it.
                    var ending = ResultDelivery.Ending.incomplete
                    // If one queue's delivery can't continue, the others end too.
                    defer { if !limits.once || ending == .closed { stop.stop() } }
                    try await CommandRedis(settings).withClient(for: keys.results) { client in
                        var delivery = ResultDelivery(
                            keys.queue, ResultGroup(client, keys, group: group, consumer: consumer), consumer: consumer,
                            to: receiver, filter: filter, limits: limits, since: since, stop: stop)
                        ending = try await delivery.run(retriesParked: callbacks.retryParked)
                    }
                    return ending
                }
            }
            return try await tasks.reduce(into: []) { $0.append($1) }
        }
        if endings.contains(.closed) || limits.once && endings.contains(.incomplete) {
            throw ExitCode(ExitStatus.attention.rawValue)
        }
    }
}

extension ResultLine {
    /// Returns the result as a line of text.
    /// - Parameter namesQueue: true if results of several queues are mixed.
    func text(namesQueue: Bool) -> String {
        let time = result.time.map { LogTime(milliseconds: $0).text } ?? result.entry
        var parts = [time, LogEscape.escaped(result["outcome"] ?? result["event"] ?? "?")]
        if let reason = result["reason"] { parts.append(LogEscape.escaped(reason)) }
        if namesQueue { parts.append("queue=\(queue)") }
        for name in [
            "status", "app", "id", "campaign", "fair", "attempt", "apns_id", "apns_unique_id", "replaced_by",
            "trace_id",
            "labels", "report",
        ] {
            if let value = result[name] { parts.append("\(name)=\(LogEscape.escaped(value))") }
        }
        if let token = result["token"] { parts.append("token=\(LogEscape.escaped(String(token.prefix(8))))…") }
        return parts.joined(separator: " ")
    }
}
