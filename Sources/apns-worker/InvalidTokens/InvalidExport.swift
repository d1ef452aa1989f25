import ArgumentParser
import NIOCore
import PushQueue

struct InvalidExport: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "export", abstract: "Write all invalid tokens, to delete them where your devices are kept.",
        discussion: """
            While workers add and remove tokens, some may be written twice; none that is there all the while is left out.
            """)

    enum Format: String, CaseIterable, ExpressibleByArgument {
        case tokens, ndjson, csv
    }

    @OptionGroup(title: "Redis") var redis: RedisOptions

    @OptionGroup(title: "Which tokens") var options: InvalidTokenOptions

    @Option(help: "tokens, one a line; ndjson or csv, with what is known of each.") var format = Format.tokens

    @Option(help: "A file to write, which is there when it is whole. (default standard output)") var output: String?

    func validate() throws { _ = try options.filter(now: 0) }

    func run() async throws {
        let filter = try options.filter(now: Moment.now)
        let file = try output.map { try FileReplacement($0) }
        let target = file?.output ?? ByteOutput.standard
        try await redis.withInvalidTokens { inspector in
            var count = 0
            if format == .csv { try target.write(InvalidTokenLine.members.joined(separator: ",") + "\r\n") }
            try await inspector.sweep(filter, withDetails: format != .tokens) { tokens in
                var text = ByteBuffer()
                for token in tokens {
                    switch format {
                    case .tokens:
                        text.writeImmutableBuffer(token.token)
                        text.writeString("\n")
                    case .ndjson: InvalidTokenLine(token).writeJSON(to: &text)
                    case .csv: InvalidTokenLine(token).writeCSV(to: &text)
                    }
                }
                count += tokens.count
                try target.write(text)
                return true
            }
            try target.flush()
            try file?.finish()
            Terminal.tell("\(count) invalid token\(count == 1 ? "" : "s")\(output.map { " written to \($0)" } ?? "")\n")
        }
    }
}
