import ArgumentParser
import NIOCore
import Operations
import PrintableText
import PushQueue

struct DeadShow: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "show", abstract: "Show dead letters with their jobs.",
        discussion: """
            Shows the job as the producer wrote it, with its tokens and its payload. Control characters are removed; --raw \
            prints the unchanged bytes.
            """)

    @OptionGroup(title: "Queue") var queue: QueueOptions

    @Argument(help: "Keys of dead letters, as `dead list` shows them.") var keys: [String] = []

    @Option(help: "Dead letters of the job with this ID. Repeatable.") var id: [String] = []

    @Flag(help: "Print only the job's bytes, of one dead letter.") var raw = false

    @Flag(help: "Print one JSON object per line.") var json = false

    func validate() throws {
        guard keys.isEmpty != id.isEmpty else {
            throw ValidationError("name dead letters by their keys, as `apns-worker dead list` shows them, or by --id")
        }
        _ = try filter()
        if raw, json { throw ValidationError("--raw and --json cannot be combined") }
    }

    private func filter() throws -> DeadLetterFilter {
        var filter = DeadLetterFilter()
        filter.keys = try keys.map(DeadLetterOptions.key)
        filter.ids = id
        return filter
    }

    func run() async throws {
        let filter = try filter()
        try await QueueChoice.withListed(queue) { fleet, queues in
            var unread = UnreadParts()
            let (output, now) = (ByteOutput.standard, Moment.now)
            var (found, originals) = (0, [DeadLetters.Listed]())
            let letters = try await unread.each(queues) { keys in
                let letters = try await fleet.deadLetters(of: keys)
                var sweep = DeadLetterSweep(letters, .show, filter)
                sweep.newestFirst = true
                if raw { sweep.lower(2) }
                try await sweep.run { page, _ in
                    guard !raw else { return originals += page.letters }
                    for letter in page.letters {
                        let row = DeadLetterRow(letter, queue: letters.keys.queue)
                        try output.write(
                            json
                                ? row.json(isDetailed: true) + "\n"
                                : (found == 0 ? "" : "\n") + row.page(now: now) + "\n"
                                    + String(buffer: row.original).printable + "\n")
                        found += 1
                    }
                }
                return letters
            }
            if raw { found = try writeBytes(originals, output) }
            try output.flush()
            unread.report()
            if found == 0 { throw ExitCode(try await DeadLetterSweep.reportNothing(letters, filter)) }
            try unread.check()
        }
    }

    private func writeBytes(_ found: [DeadLetters.Listed], _ output: ByteOutput) throws -> Int {
        guard found.count < 2 else {
            let keys = found.map(\.key).joined(separator: " and ")
            throw CommandFailure(
                .attention,
                "--raw prints one dead letter, but several match, such as \(keys); pass the key of one")
        }
        for letter in found { try output.write(letter.letter.original) }
        return found.count
    }
}
