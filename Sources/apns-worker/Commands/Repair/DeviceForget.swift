import APNS
import ArgumentParser
import NIOCore
import Operations
import PrintableText
import PushQueue

struct DeviceForget: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "forget", abstract: "Remove everything that Redis has about devices.",
        discussion: """
            Removes tokens from waiting and postponed jobs, dead letters, cancelled jobs, results, the set of invalid tokens, \
            registrations, throttles and ids, in all queues of Redis. A job of several tokens loses only these. The audit log keeps a hash.

            A job that a worker has claimed cannot be changed: the command waits for its end (--wait), and its exit status is 1 \
            if the job has not ended by then. Delete the token from your own database first, so that no job names it again.

              apns-worker device forget 00fc13ad…
              apns-worker device forget --tokens erased.txt --yes
            """)

    @OptionGroup(title: "Queues") var queue: QueueOptions

    @Argument(help: "Device tokens, in hex or base64.") var token: [String] = []

    @Option(help: ArgumentHelp("File with one token per line; - for standard input.", valueName: "file")) var tokens:
        String?

    @Option(
        help: ArgumentHelp(
            "Seconds to wait for jobs that workers have claimed. (default: 30)", valueName: "seconds"))
    var wait: Int?

    @Flag(help: "Show how many records would be removed, and remove none.") var dryRun = false

    @Flag(help: "Do not ask for confirmation. Required without a terminal.") var yes = false

    @Flag(help: "Print the result as a JSON object.") var json = false

    func validate() throws {
        guard token.isEmpty != (tokens == nil) else {
            throw ValidationError("name tokens as arguments, or a file with --tokens")
        }
        // Standard input cannot supply both the tokens and the answer.
        guard tokens != "-" || dryRun || yes else { throw ValidationError("--tokens - needs --yes or --dry-run") }
        if let part = token.first(where: TokenText.isShortened) {
            throw ValidationError(ForgetDevices.refusal(of: part))
        }
        for text in token { _ = try DeviceToken.hex(ofArgument: text) }
        try Confirmation.check(isGiven: dryRun || yes)
    }

    func run() async throws {
        var fields = Fields()
        fields.append(
            "tokens",
            try (tokens.map { try LineReader.tokensToRemove(inFile: $0, of: "--tokens") } ?? token).joined(
                separator: "\n"))
        fields.append("wait", wait.map { "\($0)" })
        let change = try readingFlags { () throws(FieldMistake) in
            try ForgetDevices(fields) { text in
                do { return String(buffer: try DeviceToken(text).hex) } catch { return nil }
            }
        }
        try await ChangeCommand(isJSON: json, isDryRun: dryRun, isConfirmed: yes, things: .records)
            .run(queue.settings(), queues: true) { _ in change }
    }
}

extension DeviceToken {
    /// Returns the hex of a whole device token.
    /// - Throws: a usage error.
    static func hex(ofArgument token: String) throws -> String {
        guard !TokenText.isShortened(token) else {
            throw ValidationError(
                "\(token.printable) is the beginning of a token; a device token has 64 hex digits or more")
        }
        do {
            return String(buffer: try DeviceToken(token).hex)
        } catch {
            throw ValidationError("\(error)")
        }
    }
}
