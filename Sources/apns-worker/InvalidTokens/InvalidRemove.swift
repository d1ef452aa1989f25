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

              apns-worker invalid list --count
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
                "choose tokens in one way: as arguments, with --from, with --topic, --reason and others, or --all")
        }
        // Standard input cannot supply both the tokens and the answer.
        guard from != "-" || dryRun || yes else { throw ValidationError("--from - needs --yes or --dry-run") }
        try Confirmation.check(isGiven: dryRun || yes || !token.isEmpty)
    }

    func run() async throws {
        let named = try namedTokens()
        let filter = try options.filter(now: Moment.now)
        try await redis.settings().withInvalidTokens { inspector in
            if dryRun { return try report(try await count(named, filter, inspector)) }
            if token.isEmpty, !yes {
                let expected = try await count(named, filter, inspector)
                guard expected > 0 else { return try report(0) }
                try Confirmation.demand("Remove \(expected) tokens from the set of invalid tokens?", isGiven: false)
            }
            Interruption.watch()
            let removed = try await remove(named, filter, inspector)
            if removed > 0 {
                let subject =
                    token.count == 1 ? "token \(token[0])" : named != nil ? "named tokens" : "tokens by a filter"
                try await redis.settings().record(.removeInvalidTokens, subject, count: removed)
            }
            try report(removed)
            if Interruption.isRequested { throw ExitCode(130) }
        }
    }

    /// Returns the tokens that are given one by one; `nil` if they are selected otherwise.
    private func namedTokens() throws -> [ByteBuffer]? {
        if let from { return try Self.tokens(inFile: from) }
        guard !token.isEmpty else { return nil }
        return try token.enumerated().map { index, text in
            do {
                return try DeviceToken(text).hex
            } catch {
                throw ValidationError("token \(index + 1): \(error)")
            }
        }
    }

    private static func tokens(inFile path: String) throws -> [ByteBuffer] {
        let descriptor = path == "-" ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else {
            throw ValidationError("--from \(path) cannot be read: \(String(cString: strerror(errno)))")
        }
        let lines = LineReader(descriptor: descriptor)
        var (number, tokens): (Int, [ByteBuffer]) = (0, [])
        while let line = lines.next({ String(decoding: $0, as: UTF8.self) }) {
            number += 1
            let text = line.filter { !$0.isWhitespace }
            guard !text.isEmpty else { continue }
            do {
                tokens.append(try DeviceToken(text).hex)
            } catch {
                throw ValidationError("--from \(path), line \(number): \(error); nothing was removed")
            }
        }
        return tokens
    }

    private func count(
        _ named: [ByteBuffer]?, _ filter: InvalidTokenFilter, _ inspector: InvalidTokenClient
    ) async throws -> Int {
        var count = 0
        if let named {
            for batch in Self.batches(named) { count += try await inspector.countMembers(batch) }
        } else {
            try await inspector.sweep(filter, withDetails: false) { tokens in
                count += tokens.count
                return true
            }
        }
        return count
    }

    private func remove(
        _ named: [ByteBuffer]?, _ filter: InvalidTokenFilter, _ inspector: InvalidTokenClient
    ) async throws -> Int {
        var count = 0
        do {
            if let named {
                for batch in Self.batches(named) where !Interruption.isRequested {
                    count += try await inspector.withdraw(batch)
                }
            } else {
                try await inspector.sweep(filter, withDetails: false) { tokens in
                    count += try await inspector.withdraw(tokens.map(\.token))
                    return !Interruption.isRequested
                }
            }
        } catch {
            Terminal.note("interrupted after removing at least \(count) tokens; repeat the command to continue\n")
            throw error
        }
        return count
    }

    private static func batches(_ tokens: [ByteBuffer]) -> [[ByteBuffer]] {
        stride(from: 0, to: tokens.count, by: 500).map { Array(tokens[$0..<min($0 + 500, tokens.count)]) }
    }

    private struct Report: Encodable {
        let count: Int
        let dryRun, interrupted: Bool

        enum CodingKeys: String, CodingKey {
            case count, interrupted
            case dryRun = "dry_run"
        }
    }

    private func report(_ count: Int) throws {
        if json {
            print(
                try JSONLine.text(Report(count: count, dryRun: dryRun, interrupted: Interruption.isRequested)))
        } else {
            print((dryRun ? "would remove " : "removed ") + "\(count) token\(count == 1 ? "" : "s")")
        }
        fflush(nil)
        if Interruption.isRequested { Terminal.note("interrupted; repeat the command to continue\n") }
        if !all, from == nil, count == 0 { throw ExitCode(ExitStatus.attention.rawValue) }
    }
}
