import ArgumentParser
import FoundationEssentials
import PushJob
import PushQueue
import Redis
import UnixSignals

struct Status: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Show the state of queues, workers and apps, and anything that needs attention.",
        discussion: """
            Shows all queues in Redis, or those of --queue. Problems come first, each with a suggested fix. Changes nothing, and \
            costs Redis little even with a large backlog.

              waiting   jobs in the list                       claimed  jobs that workers hold
              due       retries whose time has come            dead     dead letters
              later     retried, deferred and scheduled jobs   oldest   age of the oldest waiting or due job, if known
              rate/s    notifications ended, last minute       seen     age of the worker's heartbeat

            A worker that is `gone` has lost its lease; another worker reclaims its jobs within seconds. A worker that is \
            `not ready` shows the reason. The reasons of dead letters are those of the newest thousand.

            For cron and Nagios, --check prints one line and exits with 1 if something needs attention: Redis is full or \
            nearly full (90 %), refuses writes, or evicts keys; jobs wait and no worker claims them; a worker is not ready, or \
            is gone and its jobs were not reclaimed; APNs refuses an app or cannot be reached; or a job is older than --max-age.

            With --json it prints one object on a line, with --watch one for each refresh. Its members: at, redis, prefix, \
            rate, invalid_tokens, problems (kind, subject, message, advice), notes, servers (address, queues, version, \
            role, full, used_memory_bytes, max_memory_bytes (0 for no limit), eviction_policy, append_only, replicas, \
            replicas_in_step, writes_refused, error), queues (name, waiting, due, later, retrying, scheduled, deferred, claimed, dead, dead_bytes, \
            oldest_age, paused, workers, delivered_rate, today, dead_reasons, dead_sampled, error), workers (name, host, pid, \
            version, state, not_ready, lanes, lanes_total, queues, started_at, updated_at, silence, in_flight, claimed, \
            done, rate, lease_left, redis) and apps (name, endpoints, state, paused, connections, connecting, streams, \
            stream_limit, lanes, failure); paused has reason, by, since and, where a probe ends it, until. Times are in \
            ms since 1970, durations in ms; unknown values are left out.
            """)

    @OptionGroup(title: "Queues") var fleet: FleetOptions

    @Flag(help: "Refresh until Ctrl-C.")
    var watch = false

    @Argument(help: "Seconds between refreshes, with --watch. (default: 2)")
    var seconds: Double?

    @Flag(help: "Print JSON.")
    var json = false

    @Flag(help: "Print one line, and exit with 1 if something needs attention.")
    var check = false

    @Option(help: "Maximum age of the oldest job, with --check, such as 5m.")
    var maxAge: String?

    func validate() throws {
        if seconds != nil, !watch { throw ValidationError("seconds are for --watch") }
        if let seconds, !(0.1...86_400).contains(seconds) {
            throw ValidationError("the interval of --watch must be 0.1 to 86400 seconds")
        }
        if check, watch { throw ValidationError("--check and --watch cannot be combined") }
        if let maxAge, JobDuration.seconds(maxAge) == nil {
            throw ValidationError("--max-age is \(maxAge); it must be a duration such as 30s, 5m or 1h30m")
        }
    }

    private var maximumAge: Int64? { maxAge.flatMap(JobDuration.seconds).map { $0 * 1000 } }

    func run() async throws {
        let settings = try fleet.settings()
        // Apps that are named here are looked at even where no worker lives that knows them.
        let apps = try settings.appNames
        let isFine = try await FleetOptions.withFleet(settings, searches: fleet.queue == nil) { fleet in
            if watch {
                try await watch(fleet, apps)
                return true
            }
            let (queues, incomplete) = try await fleet.queues()
            var status = try await FleetStatus.read(fleet, queues, apps: apps, maximumAge: maximumAge)
            if let incomplete { status.notes.append(incomplete) }
            let screen = StatusScreen()
            if json {
                _ = screen.write(try JSONLine.text(status, keys: .convertToSnakeCase) + "\n")
            } else if check {
                _ = screen.write(Self.summary(status) + "\n")
            } else {
                _ = screen.write(page(status, screen).joined(separator: "\n") + "\n")
            }
            return status.problems.isEmpty
        }
        if check, !isFine { throw ExitCode.failure }
    }

    // MARK: One look

    private func page(_ status: FleetStatus, _ screen: StatusScreen) -> [String] {
        StatusPage(status: status, width: screen.size.columns, isColoured: screen.isColoured).lines
    }

    /// A line for a monitoring system: the first problem, or how much there is.
    static func summary(_ status: FleetStatus) -> String {
        guard let first = status.problems.first else {
            let jobs = status.queues.reduce(0) { $0 + $1.waiting + $1.due }
            let queues = status.queues.count
            let workers = status.living.count
            return
                "OK: \(jobs) \(jobs == 1 ? "job waits" : "jobs wait") in \(queues) \(queues == 1 ? "queue" : "queues"), "
                + "\(workers) \(workers == 1 ? "worker" : "workers"), \(Words.rate(status.rate))/s"
        }
        let others = status.problems.count - 1
        return "PROBLEM: \(first.message)" + (others > 0 ? " (and \(others) more: apns-worker status)" : "")
    }

    // MARK: Many looks

    private func watch(_ fleet: Fleet, _ apps: [String]) async throws {
        // The first look may fail as that of a single one does: then there is no screen to be drawn on.
        let found = try await fleet.queues()
        let screen = StatusScreen()
        let isDrawn = !json && screen.isTerminal
        let signals = await UnixSignalsSequence(trapping: .sigint, .sigterm, .sighup)
        if isDrawn, !screen.open() { return }
        defer { if isDrawn { screen.close() } }
        let pause = Duration.seconds(seconds ?? 2)
        try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask { for await _ in signals { return } }
            group.addTask { [self] in
                var (queues, incomplete) = found
                var last: FleetStatus?
                var searched = ContinuousClock.now
                while !Task.isCancelled {
                    var failure: String?
                    do {
                        if ContinuousClock.now - searched > .seconds(60) {
                            (queues, incomplete) = try await fleet.queues()
                            searched = .now
                        }
                        var status = try await FleetStatus.read(fleet, queues, apps: apps, maximumAge: maximumAge)
                        if let incomplete { status.notes.append(incomplete) }
                        if let last { status.compare(with: last) }
                        last = status
                    } catch let error as RedisError {
                        failure = "\(error)"
                    }
                    guard try show(last, failure, screen) else { return }
                    // A cancelled sleep ends the loop.
                    try? await Task.sleep(for: pause)
                }
            }
            try await group.next()
            group.cancelAll()
        }
    }

    /// - Returns: `false` when nobody reads any more.
    private func show(_ status: FleetStatus?, _ failure: String?, _ screen: StatusScreen) throws -> Bool {
        if json {
            if let failure {
                Terminal.tell("\(failure)\n")
                return true
            }
            return try status.map { screen.write(try JSONLine.text($0, keys: .convertToSnakeCase) + "\n") } ?? true
        }
        let trouble = failure.map { ["! \($0); showing the previous state", ""] } ?? []
        return screen.draw(trouble + (status.map { page($0, screen) } ?? []))
    }
}
