import ArgumentParser
import Foundation

/// `scripts/chaos`: runs workers under load while everything fails that can, and checks that the account balances.
@main
struct Chaos: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "scripts/chaos",
        abstract: "Everything goes wrong that can, and the account has to balance to the job.",
        discussion: """
            Several workers and an APNs simulator work under load while, at random, workers are killed, stopped and \
            replaced; Redis is killed, stopped, fails over or is resharded; connections are closed, reset, slowed, \
            swallowed and refused; and the simulator does everything wrong that APNs can. Then all is healed, the queue \
            is drained, and every notification must have exactly one end.

            The seed decides which faults happen when. The exit status is 0 only if the account balances.

            scripts/chaos --quick optimizes only the engine: quicker to build.
            """)

    @Option(help: "How Redis is set up: single, sentinel or cluster.")
    var topology: Topology = .single

    @Flag(
        help: """
            Let Redis keep less: appendfsync everysec, no min-replicas-to-write, and a producer that does not WAIT. What Redis \
            then forgets is pushed again, and counted.
            """)
    var relaxed = false

    @Option(help: "How long things go wrong. The drain comes on top.")
    var seconds = 60

    @Option(help: "How many jobs are pushed, evenly over that time. (default: 400 a second)")
    var jobs: Int?

    @Option(help: "How many workers there are.")
    var workers = 4

    @Option(help: "What all randomness starts from; a random one, which is printed, if not given.")
    var seed: UInt64?

    @Option(help: ArgumentHelp("Write the account to this file.", valueName: "file"))
    var json: String?

    @Option(help: ArgumentHelp("Keep the workers' logs in this directory.", valueName: "directory"))
    var logs: String?

    func validate() throws {
        guard (5...86_400).contains(seconds) else { throw ValidationError("--seconds has to be from 5 to 86400") }
        guard (1...10_000_000).contains(jobs ?? 1) else { throw ValidationError("--jobs has to be from 1 to 10000000") }
        guard (1...64).contains(workers) else { throw ValidationError("--workers has to be from 1 to 64") }
    }

    func run() async throws {
        let directory = logs.map { URL(filePath: $0) }
        if let directory { try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true) }
        let seed = seed ?? UInt64.random(in: 1...999_999)
        let options = ChaosRun.Options(
            topology: topology, durability: relaxed ? .relaxed : .strict, workers: workers, seconds: seconds,
            jobs: jobs ?? seconds * 400, seed: seed, logs: directory)
        let head = "\(options.name), \(workers) workers, \(options.jobs) jobs in \(seconds) s, seed \(seed)\n"
        FileHandle.standardOutput.write(Data(head.utf8))
        let outcome = try await ChaosRun(options).run()
        FileHandle.standardOutput.write(Data(outcome.text.utf8))
        if let json {
            let encoder = JSONEncoder()
            encoder.outputFormatting = [.prettyPrinted, .sortedKeys]
            try encoder.encode(outcome).write(to: URL(filePath: json))
        }
        if !outcome.isBalanced { throw ExitCode(1) }
    }
}

extension Topology: ExpressibleByArgument {}
