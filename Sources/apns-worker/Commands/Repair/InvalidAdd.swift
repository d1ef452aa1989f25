import APNS
import ArgumentParser
import Glibc
import NIOCore
import Operations
import PushJob
import PushQueue

struct InvalidAdd: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "add", abstract: "Add tokens that another system has found to be invalid.",
        discussion: """
            Before moving to apns-worker, import the tokens that your system no longer sends to, so that workers do not try \
            them again:

              apns-worker invalid add --from dead-tokens.txt --reason Unregistered --topic com.example.app
              psql -Atc 'SELECT token FROM dead_devices' | apns-worker invalid add

            Lines that are not device tokens are reported with their numbers and skipped; the exit status is then 1. Repeating \
            the command is harmless. Without --topic a token is invalid for all topics, and without --environment in all \
            environments except the sandbox. A device that has registered since (`registered_at` of its jobs) is sent to again.
            """)

    @OptionGroup(title: "Redis") var redis: RedisOptions

    @Argument(help: "Device tokens, in hex. (default: standard input, one per line)") var token: [String] = []

    @Option(help: "File with one token per line; - for standard input.") var from: String?

    @Option(help: "Reason to store with the tokens. (default: Imported)") var reason: String?

    @Option(help: "Topic for which the tokens are invalid. (default: all)") var topic: String?

    @Option(
        help:
            "Environment in which the tokens are invalid: production, sandbox, or the host and port of another server. (default: all except the sandbox)"
    )
    var environment: String?

    @Option(help: "Time at which the tokens became invalid: ISO 8601, or seconds since 1970. (default: now)")
    var at: String?

    @Flag(help: "Print the result as a JSON object.") var json = false

    /// The number of tokens per write.
    private static let batch = 500

    func validate() throws {
        if !token.isEmpty, from != nil { throw ValidationError("pass tokens as arguments or with --from, not both") }
        _ = try template()
        if token.isEmpty, from == nil, isatty(STDIN_FILENO) == 1 {
            throw ValidationError("pass tokens as arguments, with --from FILE, or on standard input")
        }
    }

    /// Returns an invalid token without the token itself: the tokens have all other members in common.
    private func template() throws -> InvalidToken {
        var fields = Fields(refusesEmpty: true)
        for (name, value) in [("reason", reason), ("topic", topic), ("environment", environment), ("at", at)] {
            fields.append(name, value)
        }
        return try readingFlags { () throws(FieldMistake) in
            try InvalidToken(imported: fields, now: Moment.now) { APNSEndpoint($0)?.environment ?? $0 }
        }
    }

    private struct Tally: Encodable {
        /// The numbers of new tokens, of tokens that were in the set before, of tokens whose devices have registered since, and of refused
        /// lines.
        var added = 0
        var known = 0
        var registered = 0
        var refused = 0

        var words: String {
            let added = "added \(Words.number(added)) token\(added == 1 ? "" : "s")"
            let others = [
                (known, "already present"), (registered, "registered since"), (refused, "refused"),
            ].filter { $0.0 > 0 }.map { "\(Words.number($0.0)) \($0.1)" }
            return ([added] + others).joined(separator: ", ")
        }
    }

    func run() async throws {
        let template = try template()
        let lines = try lines()
        var tally = Tally()
        Interruption.watch()
        try await CommandRedis(redis.settings()).withInvalidTokens { client in
            var batch: [InvalidToken] = []
            var number = 0
            while !Interruption.isRequested, let line = lines() {
                number += 1
                for text in TokenText.divided(line) {
                    var invalid = template
                    do {
                        invalid.token = try DeviceToken(text).hex
                    } catch {
                        tally.refused += 1
                        Terminal.note("\(token.isEmpty ? "line" : "token") \(number): \(error)\n")
                        continue
                    }
                    batch.append(invalid)
                }
                if batch.count >= Self.batch { try await write(&batch, client, &tally) }
            }
            try await write(&batch, client, &tally)
            if tally.added > 0 {
                let subject = token.count == 1 ? "token \(token[0])" : "tokens"
                let entry = AuditEntry(
                    .addInvalidTokens, subject, by: Person.name, count: tally.added, detail: template.reason, via: .cli)
                let settings = try redis.settings()
                try await FleetOptions.withFleet(settings, searches: false) { fleet in
                    try await Desk(fleet, [], settings).record(entry)
                }
            }
            if json { print(try JSONLine.text(tally)) } else { print(tally.words) }
        }
        if Interruption.isRequested {
            Terminal.note("interrupted; repeat the command to continue\n")
            throw ExitCode(130)
        }
        if tally.refused > 0 { throw ExitCode(1) }
    }

    /// Returns a function that returns the next line or argument at each call.
    private func lines() throws -> () -> String? {
        guard token.isEmpty else {
            var rest = token[...]
            return { rest.popFirst() }
        }
        let reader = try LineReader(from: from ?? "-")
        return { reader.next { String(decoding: $0, as: UTF8.self) } }
    }

    private func write(
        _ batch: inout [InvalidToken], _ client: InvalidTokenClient, _ tally: inout Tally
    ) async throws {
        guard !batch.isEmpty else { return }
        do {
            for marking in try await client.mark(batch) {
                switch marking {
                case .added: tally.added += 1
                case .known: tally.known += 1
                case .registeredSince: tally.registered += 1
                }
            }
        } catch {
            Terminal.note("\(tally.words); Redis then refused more; repeat the command to continue\n")
            throw error
        }
        batch = []
    }
}
