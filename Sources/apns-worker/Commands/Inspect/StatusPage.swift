import Operations
import PushQueue

/// A status as text, with problems first. Only long names make lines longer than 80 columns.
struct StatusPage {
    let status: FleetStatus
    var width = 80
    var isColoured = false

    private enum Style: String {
        case bold = "1"
        case dim = "2"
        case red = "31"
        case yellow = "33"
    }

    var lines: [String] {
        header + problems + servers + queues + workers + apps + counters + notes
    }

    private func styled(_ text: String, _ style: Style?) -> String {
        guard isColoured, let style else { return text }
        return "\u{1B}[\(style.rawValue)m\(text)\u{1B}[0m"
    }

    private var header: [String] {
        let prefix = status.prefix == "push" ? "" : "  prefix \(status.prefix)"
        let rate = "\(Words.rate(status.rate))/s"
        return [styled(cut("\(Words.clock(status.at)) UTC  \(rate)  \(status.redis)\(prefix)"), .dim)]
    }

    /// The maximum number of problems of one kind that are shown individually. Further problems are summarized.
    private static let shownOfKind = 3

    private var problems: [String] {
        var lines: [String] = []
        var shown: Set<String> = []
        for problem in status.problems where shown.insert(problem.kind.name).inserted {
            let ofKind = status.problems.filter { $0.kind.name == problem.kind.name }
            let rest = ofKind.count > Self.shownOfKind ? ofKind.dropFirst(Self.shownOfKind - 1) : []
            for problem in ofKind.dropLast(rest.count) {
                lines += wrapped("! " + problem.message, indent: "  ").map { styled($0, .red) }
                lines += wrapped("→ " + problem.advice, lead: "  ", indent: "    ")
            }
            guard !rest.isEmpty else { continue }
            let names = rest.prefix(8).map(\.subject).joined(separator: ", ") + (rest.count > 8 ? ", …" : "")
            lines += wrapped("! same problem for \(rest.count) more: \(names)", indent: "  ").map { styled($0, .red) }
        }
        return lines.isEmpty ? [] : [""] + lines
    }

    // MARK: Redis

    private var servers: [String] {
        guard !status.servers.isEmpty else { return [] }
        return [""]
            + status.servers.flatMap { server in
                var lines: [String] = []
                for part in Self.parts(server, isOnly: status.servers.count == 1) {
                    if let last = lines.last, last.count + part.count + 2 <= width {
                        lines[lines.count - 1] += "  " + part
                    } else {
                        lines.append((lines.isEmpty ? "" : "  ") + part)
                    }
                }
                return lines.map { styled(cut($0), server.found.refusesWrites ? .red : nil) }
            }
    }

    /// Returns the parts of a line such as `REDIS 7.0.15  21.4 of 20.5 MiB (full, noeviction)  AOF off`.
    private static func parts(_ server: ServerStatus, isOnly: Bool) -> [String] {
        let found = server.found
        var parts = ["REDIS \(server.info?.version ?? "?")"]
        if found.isFailedOver || !isOnly { parts.append(found.address) }
        guard let info = server.info else { return parts + ["INFO is refused"] }
        if let memory = info.memoryInWords {
            let policy = info.evictionPolicy.map { ", \($0)" } ?? ""
            if let share = info.memoryShare {
                parts.append("\(memory) (\(found.isFull ? "full" : "\(Int(share * 100)) %")\(policy))")
            } else {
                parts.append("\(memory) (no limit)")
            }
        }
        if let keeps = info.keepsAppendOnlyFile { parts.append("AOF \(keeps ? "on" : "off")") }
        if info.role == .replica { parts.append("a replica") }
        if found.isFailedOver, info.role == .master, let replicas = info.replicas {
            let inSync = info.replicasInStep.map { ", \($0) in sync" } ?? ""
            parts.append(replicas == 1 ? "1 replica\(inSync)" : "\(replicas) replicas\(inSync)")
        }
        if !found.isFull, found.refusesWrites { parts.append("refuses writes") }
        if !isOnly { parts.append(server.queues.joined(separator: ",")) }
        return parts
    }

    // MARK: Queues

    private var queues: [String] {
        let hasRate = status.queues.contains { $0.deliveredRate != nil }
        let heads = ["waiting", "due", "later", "claimed", "dead", "oldest"] + (hasRate ? ["sent/s"] : [])
        var rows: [[String]] = []
        var notes: [Int: [String]] = [:]
        for queue in status.queues {
            if let error = queue.error {
                rows.append([queue.name, "?", "?", "?", "?", "?", "?"] + (hasRate ? ["?"] : []))
                notes[rows.count] = wrapped(error, lead: "  ", indent: "    ")
                continue
            }
            rows.append(
                [queue.name]
                    + [queue.waiting, queue.due, queue.later, queue.claimed, queue.dead].map(Words.number)
                    + [queue.oldestAgeMs.map(Words.duration) ?? (queue.waiting > 0 ? "?" : "-")]
                    + (hasRate ? [queue.deliveredRate.map(Words.rate) ?? ""] : []))
            notes[rows.count] =
                (Self.fair(queue).map { wrapped($0, lead: "  ", indent: "    ") } ?? [])
                + (Self.postponed(queue).map { ["  " + $0] } ?? [])
            if let pause = queue.paused {
                notes[rows.count, default: []] += wrapped(
                    "paused" + Self.words(pause, now: status.at), lead: "  ", indent: "    "
                )
                .map { styled($0, .yellow) }
            }
        }
        return lines(["QUEUE"] + heads, rows, alignsLeft: [0], nameWidth: width - 10 * heads.count - 2, notes)
    }

    /// Returns a line such as `most waiting bytes: acme (95.3 MiB of 101.1 MiB, 40 keys)`; `nil` unless one share has more than half of the
    /// bytes.
    private static func fair(_ queue: QueueStatus) -> String? {
        guard let shares = queue.fair, let largest = shares.dominant else { return nil }
        return "most waiting bytes: \(QueueShares.name(largest)) (\(Words.bytes(largest.waitingBytes)) of "
            + "\(Words.bytes(shares.waitingBytes)), \(Words.count(shares.count, "key")))"
    }

    /// Returns a line such as `of due and later: 12 retrying, 3 scheduled`; `nil` without due and later jobs.
    private static func postponed(_ queue: QueueStatus) -> String? {
        guard queue.due + queue.later > 0 else { return nil }
        var parts = queue.retrying > 0 ? ["\(Words.number(queue.retrying)) retrying"] : []
        if let scheduled = queue.scheduled, let deferred = queue.deferred {
            if scheduled > 0 { parts.append("\(Words.number(scheduled)) scheduled") }
            if deferred > 0 { parts.append("\(Words.number(deferred)) deferred") }
        } else {
            parts.append("\(Words.number(queue.due + queue.later - queue.retrying)) scheduled or deferred")
        }
        return parts.isEmpty ? nil : "of due and later: " + parts.joined(separator: ", ")
    }

    private static func words(_ pause: PauseRecord, now: Int64) -> String {
        var words = Words.since(pause.since, now: now)
        if !pause.isReasonless, let by = pause.by { words += ", by \(by)" }
        return words + ": \(pause.reason)" + (pause.detail.map { " (\($0))" } ?? "")
    }

    // MARK: Workers

    private var workers: [String] {
        guard !status.workers.isEmpty else { return ["", "No worker has a lease."] }
        let heads = ["WORKER", "version", "up", "lanes", "in flight", "rate/s", "lease", "seen", "state"]
        var rows: [[String]] = []
        for worker in status.workers {
            let name = worker.host.isEmpty ? worker.name : "\(worker.host) \(worker.pid)"
            let isGone = worker.state == .gone
            let isWhole = worker.lanes == worker.lanesTotal
            rows.append([
                name, worker.version, worker.startedAt.map { Words.brief(max(0, status.at.since($0))) } ?? "?",
                isGone ? "-" : isWhole ? "\(worker.lanes)" : "\(worker.lanes)/\(worker.lanesTotal)",
                isGone ? "-" : Words.number(worker.inFlight), isGone ? "-" : Words.rate(worker.rate),
                isGone ? "ended" : Words.brief(worker.leaseLeftMs), worker.silenceMs.map(Words.brief) ?? "?",
                worker.state == .running && !worker.notReady.isEmpty ? "not ready" : worker.state.rawValue,
            ])
        }
        var notes: [Int: [String]] = [:]
        for (index, worker) in status.workers.enumerated() {
            var text = worker.notReady.map { "not ready: \($0)" }
            if worker.leaseLeftMs < 0 {
                let jobs = worker.claimed > 0 ? "; it had \(Words.number(worker.claimed)) jobs" : ""
                let cause = worker.state == .unknown ? "; Redis refuses writes, so workers cannot renew leases" : ""
                text.append("its lease ended \(Words.duration(-worker.leaseLeftMs)) ago\(jobs)\(cause)")
            }
            let lines = text.flatMap { wrapped($0, lead: "  ", indent: "    ") }
            if !lines.isEmpty { notes[index + 1] = lines.map { styled($0, .yellow) } }
        }
        return lines(heads, rows, alignsLeft: [0, 8], nameWidth: width - 64, notes)
    }

    // MARK: Apps

    private var apps: [String] {
        guard !status.apps.isEmpty else { return [] }
        var (rows, notes) = ([[String]](), [Int: [String]]())
        for app in status.apps {
            let connecting = app.connecting > 0 ? "+\(app.connecting)" : ""
            rows.append([
                app.name, "\(app.connections)\(connecting)",
                "\(Words.number(app.streams))/\(Words.number(app.streamLimit))", app.state.rawValue,
            ])
            if let pause = app.paused {
                notes[rows.count] = wrapped(
                    "paused by operator" + Self.words(pause, now: status.at), lead: "  ",
                    indent: "    "
                ).map { styled($0, .yellow) }
            } else if let failure = app.failure {
                notes[rows.count] = wrapped(failure, lead: "  ", indent: "    ").map { styled($0, .yellow) }
            }
        }
        let heads = ["APP", "connections", "streams", "state"]
        return lines(heads, rows, alignsLeft: [0, 3], nameWidth: width - 50, notes)
    }

    // MARK: Counters

    private var counters: [String] {
        let outcomes = [
            "delivered", "invalid_token", "suppressed", "expired", "dead", "cancelled", "retried", "deferred",
            "dropped",
            "possible_duplicates",
        ]
        let sums = Self.sums(status.queues.map(\.today))
        var lines = wrapped(
            "TODAY (UTC)  "
                + outcomes.filter { sums[$0] ?? 0 > 0 || $0 == "delivered" }
                .map { "\($0.replacing("_", with: " ")) \(Words.number(sums[$0] ?? 0))" }.joined(separator: "  "),
            indent: "    ")
        let today = sums.filter { $0.key.hasPrefix("dead:") }.map { (String($0.key.dropFirst(5)), $0.value) }
        if !today.isEmpty { lines += wrapped("dead today  " + Self.list(today), lead: "  ", indent: "    ") }
        let dead = status.queues.reduce(0) { $0 + $1.dead }
        if dead > 0 {
            let sampled = status.queues.reduce(0) { $0 + $1.deadSampled }
            let of = sampled < dead ? " (the newest \(Words.number(sampled)))" : ""
            let reasons = Self.sums(status.queues.map(\.deadReasons)).map { ($0.key, $0.value) }
            let bytes = Words.bytes(status.queues.reduce(0) { $0 + $1.deadBytes })
            lines += wrapped(
                "DEAD LETTERS  \(Words.number(dead))\(of), \(bytes): " + Self.list(reasons), indent: "    ")
        }
        let cancelled = status.queues.reduce(0) { $0 + $1.cancelled }
        if cancelled > 0 { lines.append("CANCELLED JOBS  \(Words.number(cancelled)), kept apart") }
        lines.append("INVALID TOKENS  \(Words.number(status.invalidTokens))")
        return [""] + lines
    }

    private static func sums(_ counters: [[String: Int]]) -> [String: Int] {
        counters.reduce(into: [:]) { $0.merge($1) { min($0 + $1, 10_000_000_000_000) } }
    }

    /// Returns the most frequent entries, and the number of others.
    private static func list(_ counts: [(String, Int)]) -> String {
        let sorted = counts.sorted { ($1.1, $0.0) < ($0.1, $1.0) }
        let shown = sorted.prefix(8).map { "\($0.0) \(Words.number($0.1))" }.joined(separator: ", ")
        return shown + (sorted.count > 8 ? ", and \(sorted.count - 8) more reasons" : "")
    }

    private var notes: [String] {
        guard !status.notes.isEmpty else { return [] }
        return [""] + status.notes.flatMap { wrapped("note: \($0)", indent: "  ") }
    }

    // MARK: Lines

    private func lines(
        _ heads: [String], _ rows: [[String]], alignsLeft: Set<Int>, nameWidth: Int, _ notes: [Int: [String]]
    ) -> [String] {
        let rows = ([heads] + rows).map { row in
            let name = row[0].count > max(10, nameWidth) ? row[0].prefix(max(10, nameWidth) - 1) + "…" : row[0]
            return [name] + row.dropFirst()
        }
        let table = Table(heads, rows, alignsLeft: alignsLeft)
        return [""]
            + rows.enumerated().flatMap { index, row in
                [styled(cut(table.line(row)), index == 0 ? .bold : nil)] + (notes[index] ?? [])
            }
    }

    private func cut(_ line: String) -> String {
        line.count <= width ? line : String(line.prefix(width - 1)) + "…"
    }

    /// Breaks a text between words. A word that is longer than a line stays whole, so that it can be copied.
    /// - Parameters:
    ///   - lead: the beginning of the first line.
    ///   - indent: the beginning of further lines.
    private func wrapped(_ text: String, lead: String = "", indent: String) -> [String] {
        var lines: [String] = []
        var line = lead
        var isEmpty = true
        for word in text.split(separator: " ", omittingEmptySubsequences: false) {
            let longer = isEmpty ? line + word : line + " " + word
            if longer.count > width, !isEmpty {
                lines.append(line)
                line = indent + word
            } else {
                line = longer
            }
            isEmpty = false
        }
        return lines + [line]
    }
}
