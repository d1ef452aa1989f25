import APNS
import ArgumentParser
import Glibc
import NIOCore
import Operations
import PushQueue

struct InvalidRemove: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "remove", abstract: "Remove tokens from the set, so that workers send to them again.",
        discussion: """
            For tokens that were added by mistake, for example because the wrong environment was configured:

              apns-worker invalid list --by reason,environment
              apns-worker invalid remove --environment sandbox --reason BadDeviceToken --since 2026-11-21T08:00:00Z

            A token that is invalid after all is added again by the next notification.
            """)

    @OptionGroup(title: "Redis") var redis: RedisOptions

    @Argument(help: "Device tokens, in hex.") var token: [String] = []

    @Option(help: ArgumentHelp("File with one token per line; - for standard input.", valueName: "file")) var from:
        String?

    @OptionGroup(title: "Filters") var options: InvalidTokenOptions

    @Flag(help: "All tokens.") var all = false

    @Flag(help: "Show how many would be removed, and remove none.") var dryRun = false

    @Flag(help: "Do not ask for confirmation. Required without a terminal, except for tokens in the arguments.")
    var yes = false

    @Flag(help: "Print the result as a JSON object.") var json = false

    func validate() throws {
        let hasFilter = try !options.filter(now: 0).isEmpty
        let ways = [!token.isEmpty, from != nil, hasFilter, all].filter { $0 }.count
        guard ways == 1 else {
            throw ValidationError(
                "choose tokens in one way: as arguments, with --from, with filters such as --topic, or with --all")
        }
        // Standard input cannot supply both the tokens and the answer.
        guard from != "-" || dryRun || yes else { throw ValidationError("--from - needs --yes or --dry-run") }
        try Confirmation.check(isGiven: dryRun || yes || !token.isEmpty)
    }

    func run() async throws {
        var fields = options.fields
        let named = try namedTokens()
        for text in named { fields.append("token", text) }
        fields.append("all", all ? "1" : nil)
        if from != nil, named.isEmpty { return Terminal.note("--from has no tokens\n") }
        // An operator who passes tokens as arguments knows their number, and is not asked.
        let command = ChangeCommand(
            isJSON: json, isDryRun: dryRun, isConfirmed: yes, asks: { _ in token.isEmpty }, things: .tokens,
            nothing: all || from != nil ? 0 : ExitStatus.attention.rawValue)
        try await command.run(redis.settings(), queues: false) { [fields] fleet in
            try RemoveInvalidTokens(fields, now: try await fleet.now())
        }
    }

    /// Returns the tokens that are given one by one, in hex.
    private func namedTokens() throws -> [String] {
        if let from { return try LineReader.tokensToRemove(inFile: from, of: "--from") }
        return try token.enumerated().map { index, text in
            do {
                return String(buffer: try DeviceToken(text).hex)
            } catch {
                throw ValidationError("token \(index + 1): \(error)")
            }
        }
    }
}
