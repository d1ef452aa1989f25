import ArgumentParser

/// What `scripts/bench` needs beside the worker and the simulator. It runs these commands; so may anyone.
@main
struct Benchmarks: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "Benchmarks",
        abstract: "The parts of scripts/bench that are written in Swift.",
        subcommands: [Claims.self, Micro.self, Pace.self, Token.self])
}
