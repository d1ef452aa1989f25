import ArgumentParser

/// The commands that `scripts/bench` runs beside the worker and the simulator.
@main
struct Benchmarks: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "Benchmarks",
        abstract: "The parts of scripts/bench that are written in Swift.",
        subcommands: [Claims.self, Token.self])
}
