import ArgumentParser
import Foundation

/// `scripts/chaos`: runs workers under load and faults, and checks that the accounts balance.
@main
struct Chaos: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "scripts/chaos",
        abstract: "Runs workers under load while everything fails that can, and accounts for each job.")

    // The help is in the script, which prints it without a build.
    @Option var topology: Topology = .single
    @Flag var relaxed = false
    @Option var seconds = 60
    @Option var jobs: Int?
    @Option var workers = 4
    @Option var queues = 3
    @Option var poison = 2
    @Option var seed: UInt64?
    @Option var json: String?
    @Option var logs: String?

    func validate() throws {
        guard (5...86_400).contains(seconds) else { throw ValidationError("--seconds must be from 5 to 86400") }
        guard (1...10_000_000).contains(jobs ?? 1) else { throw ValidationError("--jobs must be from 1 to 10000000") }
        guard (1...64).contains(workers) else { throw ValidationError("--workers must be from 1 to 64") }
        guard (0...20).contains(poison) else { throw ValidationError("--poison must be from 0 to 20") }
        guard (1...16).contains(queues) else { throw ValidationError("--queues must be from 1 to 16") }
    }

    func run() async throws {
        let directory = logs.map { URL(filePath: $0) }
        if let directory { try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true) }
        let seed = seed ?? UInt64.random(in: 1...999_999)
        let options = ChaosRun.Options(
            topology: topology, durability: relaxed ? .relaxed : .strict, queue: HotQueue(queues: queues),
            workers: workers, seconds: seconds, poison: poison, jobs: jobs ?? seconds * 400, seed: seed, logs: directory
        )
        let head =
            "\(options.name), \(queues) queues, \(workers) workers, \(options.jobs) jobs in \(seconds) s, \(poison) % poison, seed \(seed)\n"
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
