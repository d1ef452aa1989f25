import ArgumentParser
import FoundationEssentials
import PushQueue
import Redis

struct Quiet: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Have workers take no more jobs, finish what they have, and stay.",
        discussion: """
            For a moment's peace before a deployment, or to look at one worker. A quiet worker keeps its leases, answers its \
            health check with `not ready`, and goes on with `apns-worker quiet --undo`; SIGTSTP and SIGCONT do the same to a \
            process. An order reaches a worker within about ten seconds, and is forgotten after ten minutes if none does.

              apns-worker quiet web-3              # the only worker of that host
              apns-worker quiet --all --wait       # and exit 0 when nothing is under way any more
            """)

    @OptionGroup var order: OrderOptions

    @Flag(help: "Have them take jobs again.")
    var undo = false

    func run() async throws {
        if undo {
            return try await order.give(
                .work,
                .init(
                    question: "This lets workers take jobs again",
                    told: "jobs are taken again within a few seconds",
                    done: "takes jobs again",
                    isDone: { status, name in
                        status.workers.contains { $0.name == name && $0.state == .running }
                    }))
        }
        try await order.give(
            .quiet,
            .init(
                question: "This makes workers quiet: nobody takes jobs of their queues then, unless there are others",
                told: "no more jobs are taken in a few seconds; `apns-worker quiet --undo` ends that",
                done: "is quiet, with nothing under way",
                isDone: { status, name in
                    status.workers.contains {
                        $0.name == name && $0.state == .quiet && $0.inFlight == 0 && $0.claimed == 0
                    }
                }))
    }
}

struct Stop: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Have workers finish what they have, give the rest back, and end, as SIGTERM does.",
        discussion: """
            Whatever started a worker may start another one in its place: a container is restarted, and to have fewer of \
            them is for whoever runs them to say. An order reaches a worker within about ten seconds, and is forgotten after \
            ten minutes if none does.
            """)

    @OptionGroup var order: OrderOptions

    func run() async throws {
        try await order.give(
            .stop,
            .init(
                question: "This ends workers: their jobs are finished or given back",
                told: "it finishes what it has, gives the rest back and ends",
                done: "has ended",
                isDone: { status, name in !status.workers.contains { $0.name == name && $0.state != .gone } }))
    }
}

/// An order to workers: whom, and whether to wait until it is carried out.
struct OrderOptions: ParsableArguments {
    @OptionGroup(title: "Queues") var fleet: FleetOptions

    @Argument(
        help: "The workers, by their names in `apns-worker status --json` or the beginnings of these: host, host.pid.")
    var workers: [String] = []

    @Flag(help: "All workers.")
    var all = false

    @Flag(help: "Wait until it is done; exit 1 if it is not in time.")
    var wait = false

    @Option(
        help: ArgumentHelp("With --wait: how long at most. (default: 1m)", valueName: "duration"),
        transform: { try DurationText.option($0, "--timeout", bare: .seconds, 1...86_400) })
    var timeout = 60_000

    @Flag(help: "With --all: do not ask.")
    var yes = false

    @Flag(help: "Print JSON: an object with order, workers and, with --wait, done.")
    var json = false

    func validate() throws {
        guard workers.isEmpty == all else {
            throw ValidationError(
                all
                    ? "name workers or give --all, not both"
                    : "name a worker, or give --all; `apns-worker status` shows them")
        }
    }

    /// How an order is told.
    struct Manner {
        /// What it does to workers, for the question: `This makes 3 workers quiet`.
        var question: String
        /// What happens now.
        var told: String
        /// What is when it is done.
        var done: String
        /// Whether it is.
        var isDone: (FleetStatus, String) -> Bool
    }

    /// Gives the order.
    func give(_ kind: WorkerCommand.Kind, _ manner: Manner) async throws {
        let isDone: Bool = try await fleet.withFleet { fleet in
            let (queues, incomplete) = try await fleet.queues()
            let status = try await FleetStatus.read(fleet, queues)
            if let incomplete { Terminal.tell("note: \(incomplete)\n") }
            let choice = WorkerChoice(status.workers)
            let chosen = all ? choice.living : try choice.named(workers)
            guard !chosen.isEmpty else { throw ValidationError("there is no worker: none has a lease now") }
            guard !all || confirms(manner, chosen) else { throw ExitCode.failure }
            for worker in chosen {
                for keys in queues where worker.queues.contains(keys.queue) {
                    try await WorkerCommand(kind, at: status.at).give(
                        to: worker.name, fleet.client(for: keys.jobs), keys)
                }
            }
            if !json {
                print("told \(Self.named(chosen)): \(manner.told)")
            }
            let done = try await wait ? waits(for: chosen, fleet, queues, manner) : nil
            if json { print(try Self.json(kind, chosen, done)) }
            return done ?? true
        }
        if !isDone { throw ExitCode.failure }
    }

    private static func named(_ workers: [FleetStatus.Worker]) -> String {
        workers.count <= 3 ? workers.map(\.name).joined(separator: ", ") : "\(workers.count) workers"
    }

    /// Asks whoever sits at the terminal; where nobody does, the order was meant.
    private func confirms(_ manner: Manner, _ chosen: [FleetStatus.Worker]) -> Bool {
        guard !yes, Confirmation.isPossible else { return true }
        let count = chosen.count == 1 ? "1 worker" : "\(chosen.count) workers"
        guard Confirmation.ask("\(WorkerChoice.list(chosen))\n\(manner.question) (\(count)). Go on?") else {
            Terminal.tell("nothing was done\n")
            return false
        }
        return true
    }

    private func waits(
        for chosen: [FleetStatus.Worker], _ fleet: Fleet, _ queues: [QueueKeys], _ manner: Manner
    ) async throws -> Bool {
        let end = ContinuousClock.now + .milliseconds(timeout)
        var open = chosen
        var last = FleetStatus()
        while true {
            last = try await FleetStatus.read(fleet, queues)
            for worker in open where manner.isDone(last, worker.name) {
                if !json { print("\(worker.name) \(manner.done)") }
                open.removeAll { $0.name == worker.name }
            }
            if open.isEmpty { return true }
            guard ContinuousClock.now < end else { break }
            try await Task.sleep(for: .milliseconds(300))
        }
        for worker in open {
            let now = last.workers.first { $0.name == worker.name }
            let state = now.map { "\($0.state.rawValue), with \($0.inFlight) notifications in flight" } ?? "gone"
            Terminal.tell("\(worker.name) is not done after \(DurationText.text(timeout)): it is \(state)\n")
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
