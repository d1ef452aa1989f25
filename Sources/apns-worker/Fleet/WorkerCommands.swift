import ArgumentParser
import FoundationEssentials
import Operations
import PushQueue
import Redis

struct Quiet: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Ask workers to stop claiming jobs but keep running.",
        discussion: """
            Use it before a deployment, or to inspect one worker. A quiet worker finishes its jobs, keeps its leases, and is \
            `not ready`. `apns-worker quiet --undo` with the same workers reverses this. SIGTSTP and SIGCONT do the same to a \
            process. The command reaches a worker within about ten seconds, and expires after ten minutes.

              apns-worker quiet web-3                # the only worker of that host
              apns-worker quiet --all --yes --wait   # exits with 0 when nothing is in flight
            """)

    @OptionGroup var command: CommandOptions

    @Flag(help: "Let the workers claim jobs again.")
    var undo = false

    func run() async throws {
        if undo {
            return try await command.send(
                .work,
                .init(
                    question: "This lets workers claim jobs again",
                    sent: { _ in "it will claim jobs again within a few seconds" },
                    done: "claims jobs again",
                    isDone: { status, name in
                        status.workers.contains { $0.name == name && $0.state == .running }
                    }))
        }
        try await command.send(
            .quiet,
            .init(
                question: "This makes workers quiet: no jobs of their queues are sent unless other workers claim them",
                sent: {
                    "it will claim no more jobs within a few seconds; to undo: apns-worker quiet --undo \($0)"
                },
                done: "is quiet, with nothing in flight",
                isDone: { status, name in
                    status.workers.contains {
                        $0.name == name && $0.state == .quiet && $0.inFlight == 0 && $0.claimed == 0
                    }
                }))
    }
}

struct Stop: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Shut workers down gracefully, as SIGTERM does.",
        discussion: """
            A worker finishes the requests in flight, returns its other jobs to the queue, and exits. A supervisor may restart \
            it; scale it down there instead. The command reaches a worker within about ten seconds, and expires after ten minutes.
            """)

    @OptionGroup var command: CommandOptions

    func run() async throws {
        try await command.send(
            .stop,
            .init(
                question: "This stops workers: their jobs are finished or returned to the queue",
                sent: { _ in "it will drain, then exit" },
                done: "has ended",
                isDone: { status, name in !status.workers.contains { $0.name == name && $0.state != .gone } }))
    }
}

/// A command to workers: which workers, and whether to wait until it has been carried out.
struct CommandOptions: ParsableArguments {
    @OptionGroup(title: "Queues") var fleet: FleetOptions

    @Argument(
        help: "Workers by their names in `apns-worker status --json`, or by the beginning of a name: host, host.pid.")
    var workers: [String] = []

    @Flag(help: "All workers.")
    var all = false

    @Flag(help: "Wait until the workers are done; exit with 1 after --timeout (1m).")
    var wait = false

    @Flag(help: "Do not ask for confirmation of --all. Required without a terminal.")
    var yes = false

    @Flag(help: "Print JSON: an object with order, workers and, with --wait, done.")
    var json = false

    func validate() throws {
        guard workers.isEmpty == all else {
            throw ValidationError(
                all
                    ? "name workers or pass --all, not both"
                    : "name a worker, or pass --all; `apns-worker status` shows them")
        }
        if all { try Confirmation.check(isGiven: yes) }
    }

    /// The time to wait for workers, in milliseconds.
    private var timeout: Int { fleet.redis.timeout ?? 60_000 }

    /// The texts and the check for a command.
    struct CommandTexts {
        /// The effect on workers, for the question: `This makes 3 workers quiet`.
        var question: String
        /// The message when the command has been sent.
        var sent: (String) -> String
        /// The message when the command has been carried out.
        var done: String
        /// Returns true once the command has been carried out.
        var isDone: (FleetStatus, String) -> Bool
    }

    /// Sends the command.
    func send(_ kind: WorkerCommand.Kind, _ texts: CommandTexts) async throws {
        let isDone: Bool = try await fleet.withFleet { fleet in
            let (queues, incomplete) = try await fleet.queues()
            let status = try await FleetStatus.read(fleet, queues)
            if let incomplete { Terminal.note("note: \(incomplete)\n") }
            let choice = WorkerChoice(status.workers)
            let chosen = all ? choice.living : try choice.named(workers)
            guard !chosen.isEmpty else {
                throw CommandFailure(.attention, "no worker is running, because none has a lease")
            }
            if all {
                let count = chosen.count == 1 ? "1 worker" : "\(chosen.count) workers"
                try Confirmation.demand(
                    "\(WorkerChoice.list(chosen))\n\(texts.question) (\(count)). Continue?", isGiven: yes)
            }
            for worker in chosen {
                try await worker.send(kind, at: status.at, queues, fleet)
                await fleet.record(.init(kind), "worker \(worker.name)")
            }
            if !json {
                print("asked \(Self.named(chosen)): \(texts.sent(arguments))")
            }
            let done = try await wait ? waits(for: chosen, fleet, queues, texts) : nil
            if json { print(try Self.json(kind, chosen, done)) }
            return done ?? true
        }
        if !isDone { throw ExitCode.failure }
    }

    private static func named(_ workers: [FleetStatus.Worker]) -> String {
        workers.count <= 3 ? workers.map(\.name).joined(separator: ", ") : "\(workers.count) workers"
    }

    /// Returns the arguments that select the same workers.
    private var arguments: String {
        let choice = all ? "--all" : workers.joined(separator: " ")
        return choice + (fleet.queue.map { " --queue \($0)" } ?? "")
    }

    private func waits(
        for chosen: [FleetStatus.Worker], _ fleet: Fleet, _ queues: [QueueKeys], _ texts: CommandTexts
    ) async throws -> Bool {
        let end = ContinuousClock.now + .milliseconds(timeout)
        var open = chosen
        var last = FleetStatus()
        while true {
            last = try await FleetStatus.read(fleet, queues)
            for worker in open where texts.isDone(last, worker.name) {
                if !json { print("\(worker.name) \(texts.done)") }
                open.removeAll { $0.name == worker.name }
            }
            if open.isEmpty { return true }
            guard ContinuousClock.now < end else { break }
            try await Task.sleep(for: .milliseconds(300))
        }
        for worker in open {
            let now = last.workers.first { $0.name == worker.name }
            let state =
                now.map { "\($0.state.rawValue), \($0.inFlight) notifications in flight" } ?? "lease expired"
            Terminal.note("\(worker.name) has not finished after \(DurationText.text(timeout)); state: \(state)\n")
        }
        return false
    }

    private static func json(
        _ kind: WorkerCommand.Kind, _ workers: [FleetStatus.Worker], _ done: Bool?
    ) throws -> String {
        struct Answer: Encodable {
            var order: String
            var workers: [String]
            var done: Bool?
        }
        return try JSONLine.text(
            Answer(order: kind.rawValue, workers: workers.map(\.name), done: done), keys: .convertToSnakeCase)
    }
}
