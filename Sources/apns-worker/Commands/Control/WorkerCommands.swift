import ArgumentParser
import FoundationEssentials
import Operations
import PushJob
import PushQueue
import Redis

struct Quiet: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "quiet",
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

    func run() async throws { try await command.send(undo ? .work : .quiet) }
}

struct Stop: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "stop",
        abstract: "Shut workers down gracefully, as SIGTERM does.",
        discussion: """
            A worker finishes the requests in flight, returns its other jobs to the queue, and exits. A supervisor may restart \
            it; scale it down there instead. The command reaches a worker within about ten seconds, and expires after ten minutes.
            """)

    @OptionGroup var command: CommandOptions

    func run() async throws { try await command.send(.stop) }
}

/// The workers of a command, and the wait for its end.
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
        _ = try change(.quiet)
        if all { try Confirmation.check(isGiven: yes) }
    }

    /// The time to wait for workers, in milliseconds.
    private var timeout: Int { fleet.redis.timeout ?? 60_000 }

    private func change(_ kind: WorkerCommand.Kind) throws -> WorkersChange {
        var fields = Fields(refusesEmpty: true)
        fields.append("worker", workers)
        fields.append("all", all ? "1" : nil)
        return try readingFlags { () throws(FieldMistake) in try WorkersChange(kind, fields) }
    }

    /// Returns the message about a worker that has carried out a command; `nil` before that.
    private static func done(_ kind: WorkerCommand.Kind, by name: String, _ status: FleetStatus) -> String? {
        let worker = status.workers.first { $0.name == name }
        return switch kind {
        case .work: worker?.state == .running ? "claims jobs again" : nil
        case .quiet:
            worker?.state == .quiet && worker?.inFlight == 0 && worker?.claimed == 0
                ? "is quiet, with nothing in flight" : nil
        case .stop: worker?.state ?? .gone == .gone ? "has ended" : nil
        }
    }

    /// Sends the command.
    func send(_ kind: WorkerCommand.Kind) async throws {
        let undo = kind == .quiet ? ["quiet", "--undo"] : nil
        let (change, settings) = (try change(kind), try fleet.settings())
        let isDone: Bool = try await fleet.withFleet { fleet in
            let queues = try await fleet.notedQueues()
            var names: [String] = []
            let command = ChangeCommand(isConfirmed: yes, asks: { _ in all }) { part in
                names.append(part.subject ?? "")
                return json
                    ? nil
                    : part.sentence + (undo.map { "; to undo: \(fleet.access.command($0 + arguments))" } ?? "")
            }
            try await command.run(change, Desk(fleet, queues, settings))
            let done = try await wait ? waits(for: names, kind, fleet, queues) : nil
            if json { print(try Self.json(kind, names, done)) }
            return done ?? true
        }
        if !isDone { throw ExitCode.failure }
    }

    /// Returns the arguments that select the workers of this command.
    private var arguments: [String] {
        (all ? ["--all"] : workers) + (fleet.queue.map { ["--queue", $0] } ?? [])
    }

    private func waits(
        for chosen: [String], _ kind: WorkerCommand.Kind, _ fleet: Fleet, _ queues: [QueueKeys]
    ) async throws -> Bool {
        let end = ContinuousClock.now + .milliseconds(timeout)
        var open = chosen
        var last = FleetStatus()
        while true {
            last = try await StatusReader(fleet).read(queues)
            for name in open {
                guard let done = Self.done(kind, by: name, last) else { continue }
                if !json { print("\(name) \(done)") }
                open.removeAll { $0 == name }
            }
            if open.isEmpty { return true }
            guard ContinuousClock.now < end else { break }
            try await Task.sleep(for: .milliseconds(300))
        }
        for name in open {
            let now = last.workers.first { $0.name == name }
            let state =
                now.map { "\($0.state.rawValue), \($0.inFlight) notifications in flight" } ?? "lease expired"
            Terminal.note("\(name) has not finished after \(DurationText.text(timeout)); state: \(state)\n")
        }
        return false
    }

    private static func json(
        _ kind: WorkerCommand.Kind, _ workers: [String], _ done: Bool?
    ) throws -> String {
        struct Answer: Encodable {
            var order: String
            var workers: [String]
            var done: Bool?
        }
        return try JSONLine.text(
            Answer(order: kind.rawValue, workers: workers, done: done), keys: .convertToSnakeCase)
    }
}
