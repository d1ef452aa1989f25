import ArgumentParser
import FoundationEssentials
import Operations
import PushJob
import PushQueue
import Redis

struct Status: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "status",
        abstract: "Show the state of queues, workers and apps, and anything that needs attention.",
        discussion: """
            Shows all queues in Redis, or those of --queue. Problems come first, each with a suggested fix. Changes nothing, and \
            costs Redis little even with a large backlog.

              waiting   jobs in the list
              due       retrying, deferred and scheduled jobs whose time has come
              later     the others of these jobs
              claimed   jobs that workers hold
              dead      dead letters
              oldest    age of the oldest waiting or due job, if known
              rate/s    notifications delivered, last minute
              seen      age of the worker's heartbeat

            A worker that is `gone` has lost its lease; another worker reclaims its jobs within seconds. A worker that is \
            `not ready` shows the reason. The reasons of dead letters are those of the newest \(QueueOverview.maximumSample).

            For cron and Nagios, --check prints one line on standard output, `OK|WARNING|CRITICAL|UNKNOWN: …`, and exits with 0, \
            1, 2 or 3; `apns-worker help exit-codes` has their meanings. Dead letters are too many above 1 % of the day's outcomes \
            (UTC) and ten, or above --max-dead or --max-dead-rate.

            With --json it prints one object on a line, with --watch one for each refresh. `apns-worker help json` describes its \
            members.
            """)

    @OptionGroup(title: "Queues") var fleet: FleetOptions

    @Flag(help: "Refresh until Ctrl-C.")
    var watch = false

    @Argument(help: "Time between refreshes, with --watch. (default: 2s)")
    var interval: String?

    @Flag(help: "Print JSON.")
    var json = false

    @Flag(help: "Print one line for Nagios, and exit with 1, 2 or 3 if something needs attention.")
    var check = false

    @Option(
        help: ArgumentHelp(
            "Maximum age of the oldest job, such as 5m. (default: 10m, and 1h in a paused queue)", valueName: "duration"
        ))
    var maxAge: String?

    @Option(help: ArgumentHelp("Maximum number of dead letters of a queue. (default: no limit)", valueName: "number"))
    var maxDead: Int?

    @Option(
        help: ArgumentHelp(
            "Maximum share of a queue's notifications of the day that became dead letters. (default: 1%, and at least ten)",
            valueName: "percentage"))
    var maxDeadRate: String?

    @Option(
        help: ArgumentHelp(
            "Maximum share of a queue's tokens of the day that are invalid. (default: 20%, and at least a hundred)",
            valueName: "percentage"))
    var maxInvalidRate: String?

    func validate() throws {
        _ = try pause()
        if interval != nil, !watch { throw ValidationError("an interval needs --watch") }
        if check, watch { throw ValidationError("--check and --watch cannot be combined") }
        _ = try age()
        if let maxDead, maxDead < 0 { throw ValidationError("--max-dead must be at least 0") }
        for (flag, text) in [("--max-dead-rate", maxDeadRate), ("--max-invalid-rate", maxInvalidRate)] {
            guard let text, Self.share(text) == nil else { continue }
            throw ValidationError("\(flag) is \(text); it must be a percentage such as 1% or 0.5%")
        }
    }

    /// Returns the time between refreshes.
    private func pause() throws -> Duration {
        let flag = "the interval of --watch"
        return .milliseconds(
            try interval.map { try DurationText.option($0, flag, 100...86_400_000, .milliseconds) } ?? 2000)
    }

    /// Returns the maximum age of a job in milliseconds.
    private func age() throws -> Int64? {
        try maxAge.map { Int64(try DurationText.option($0, "--max-age", 1...365 * 86_400)) }
    }

    private static func share(_ text: String) -> Double? {
        guard let number = Double(text.hasSuffix("%") ? text.dropLast() : text[...]) else { return nil }
        return (0...100).contains(number) ? number / 100 : nil
    }

    private func limits() throws -> ProblemLimits {
        var limits = ProblemLimits()
        limits.age = try age()
        limits.dead = maxDead
        limits.deadShare = maxDeadRate.flatMap(Self.share)
        limits.invalidShare = maxInvalidRate.flatMap(Self.share)
        return limits
    }

    func run() async throws {
        let settings = try fleet.settings()
        // Configured apps are shown even if no running worker knows them.
        let apps = try settings.appNames
        let result = try await FleetOptions.withFleet(settings, searches: fleet.queue == nil) { fleet in
            if watch {
                try await watch(fleet, apps)
                return NagiosStatus.ok
            }
            let status = try await StatusReader(fleet, apps: apps, limits: limits()).read(fleet.queues())
            let screen = StatusScreen()
            if json {
                _ = screen.write(status.json() + "\n")
            } else if check {
                _ = screen.write("\(status.severity.word): \(Self.summary(status))\n")
            } else {
                _ = screen.write(page(status, screen).joined(separator: "\n") + "\n")
            }
            return status.severity
        }
        if check, result != .ok { throw ExitCode(result.rawValue) }
    }

    // MARK: Once

    private func page(_ status: FleetStatus, _ screen: StatusScreen) -> [String] {
        StatusPage(status: status, width: screen.size.columns, isColoured: screen.isColoured).lines
    }

    /// Returns a line for a monitoring system: the worst problem, or the totals.
    static func summary(_ status: FleetStatus) -> String {
        let problems = status.problems
        guard let first = problems.first(where: \.isCritical) ?? problems.first else {
            let jobs = status.queues.reduce(0) { $0 + $1.waiting + $1.due }
            let queues = status.queues.count
            let workers = status.living.count
            return
                "\(jobs) \(jobs == 1 ? "job waits" : "jobs wait") in \(queues) \(queues == 1 ? "queue" : "queues"), "
                + "\(workers) \(workers == 1 ? "worker" : "workers"), \(Words.rate(status.rate))/s"
        }
        let others = problems.count - 1
        return first.message + (others > 0 ? " (and \(others) more: apns-worker status)" : "")
    }

    // MARK: Watching

    private func watch(_ fleet: Fleet, _ apps: [String]) async throws {
        // The first read may throw: there is no screen yet to show its error.
        let queues = try await fleet.queues()
        let (screen, pause) = (StatusScreen(), try pause())
        try await screen.watch(isDrawn: !json && screen.isTerminal) { [self] in
            var queues = queues
            var last: FleetStatus?
            var searched = ContinuousClock.now
            while !Task.isCancelled {
                var failure: String?
                do {
                    if ContinuousClock.now - searched > .seconds(60) {
                        queues = try await fleet.queues()
                        searched = .now
                    }
                    var status = try await StatusReader(fleet, apps: apps, limits: limits()).read(queues)
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
    }

    /// - Returns: `false` if standard output has been closed by its reader.
    private func show(_ status: FleetStatus?, _ failure: String?, _ screen: StatusScreen) throws -> Bool {
        if json {
            if let failure {
                Terminal.note("\(failure)\n")
                return true
            }
            return status.map { screen.write($0.json() + "\n") } ?? true
        }
        let notice = failure.map { ["! \($0); showing the previous state", ""] } ?? []
        return screen.draw(notice + (status.map { page($0, screen) } ?? []))
    }
}

extension FleetStatus {
    /// The corresponding exit status of a Nagios plugin.
    fileprivate var severity: NagiosStatus {
        if problems.isEmpty { return .ok }
        return problems.contains(where: \.isCritical) ? .critical : .warning
    }
}
