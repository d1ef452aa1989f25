import ArgumentParser
import Operations
import PushQueue

struct InvalidReshard: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "reshard", abstract: "Divide the set into shards, while no worker runs.",
        discussion: """
            In a Cluster, one set is in one slot, on one server. Divided by the first bits of the tokens, it is spread over all
            servers, and each part can be moved to another one in a moment:

              apns-worker stop --all
              apns-worker invalid reshard --to 64

            While a worker has a lease, the command is refused. The tokens are copied, the copy is compared with the set, and then \
            the set is deleted. Workers that start in the meantime wait. If the command is interrupted, repeat it, or undo it with \
            the former number. --to 1 makes one set of the shards again.
            """)

    @OptionGroup(title: "Redis") var redis: RedisOptions

    @Option(help: ArgumentHelp("Number of shards, a power of two from 1 to 4096.", valueName: "shards")) var to: Int

    @Flag(help: "Show how many tokens would be copied, and copy none.") var dryRun = false

    @Flag(help: "Do not ask for confirmation. Required without a terminal.") var yes = false

    @Flag(help: "Print the result as a JSON object.") var json = false

    private var change: ReshardInvalidTokens {
        get throws { try readingFlags { () throws(FieldMistake) in try ReshardInvalidTokens(to: to) } }
    }

    func validate() throws {
        _ = try change
        try Confirmation.check(isGiven: dryRun || yes)
    }

    func run() async throws {
        try await ChangeCommand(isJSON: json, isDryRun: dryRun, isConfirmed: yes, things: .tokens)
            .run(redis.settings(), queues: false) { _ in try change }
    }
}
