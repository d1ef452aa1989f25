import APNS
import ArgumentParser
import FoundationEssentials

/// The commands that `scripts/bench` runs beside the worker and the simulator.
@main
struct Benchmarks: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "Benchmarks",
        abstract: "The parts of scripts/bench that are written in Swift.",
        subcommands: [Claims.self, Token.self])
}

/// Signs a provider token, for clients that cannot.
struct Token: ParsableCommand {
    static let configuration = CommandConfiguration(abstract: "Print a provider token, signed now.")

    @Option(help: "The signing key, a p8 file.") var key: String
    @Option(help: "The signing key's ID.") var keyID: String
    @Option(help: "The team's ID.") var teamID: String

    func run() throws { print(try Self.sign(key: key, keyID: keyID, teamID: teamID)) }

    static func sign(key: String, keyID: String, teamID: String) throws -> String {
        let signingKey = try SigningKey(pem: Array(Data(contentsOf: URL(filePath: key))))
        let now = Int64(Date().timeIntervalSince1970)
        return try ProviderTokenSource(key: signingKey, keyID: keyID, teamID: teamID).token(now: now).jwt
    }
}
