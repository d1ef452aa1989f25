import ArgumentParser
import Operations
import PrintableText
import PushQueue

struct Dead: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "dead",
        abstract: "List, show or delete dead letters.",
        discussion: """
            A dead letter is a job that cannot be delivered, kept as the producer wrote it, with the reason. \
            `apns-worker requeue` returns dead letters to the queue.
            """,
        subcommands: [DeadList.self, DeadShow.self, DeadDelete.self])
}

struct DeadList: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "list", abstract: "List dead letters, newest first.",
        discussion: """
            Shows the queues of --queue, or those that variables or the file name, or else all queues in Redis.
            """)

    @OptionGroup(title: "Queue") var queue: QueueOptions

    @OptionGroup(title: "Filters") var options: DeadLetterOptions

    @OptionGroup var list: ListOptions<DeadLetterRow>

    func validate() throws { _ = try options.filter() }

    func run() async throws {
        let filter = try options.filter()
        try await QueueChoice.withListed(queue) { fleet, queues in
            var (counts, output) = (list.counts, list.output(hasQueue: queues.count > 1))
            let screen = StatusScreen()
            output.width = screen.isTerminal ? screen.size.columns : nil
            // The rows of several queues are printed in the order of time, once all queues were read.
            let isSorted = queues.count > 1 && output.limit < .max
            var (rows, unread) = ([DeadLetterRow](), UnreadParts())
            let letters = try await unread.each(queues) { keys in
                let letters = try await fleet.deadLetters(of: keys)
                if let groups = counts?.groups, Set(groups).isSubset(of: ["reason", "queue"]) {
                    let tally = try await DeadLetterSweep.count(letters, filter)
                    for (reason, count) in tally.reasons { counts?.add(count) { $0 == "queue" ? keys.queue : reason } }
                    return letters
                }
                var sweep = DeadLetterSweep(letters, .list, filter)
                sweep.newestFirst = true
                // Reads one more than the limit, to find out whether there are more.
                if counts == nil, output.limit < .max { sweep.lower(output.limit + 1) }
                try await sweep.run { page, _ in
                    let found = page.letters.map { DeadLetterRow($0, queue: keys.queue) }
                    if counts != nil {
                        for row in found { counts?.add(row) }
                    } else if isSorted {
                        rows += found
                    } else {
                        _ = try output.add(found)
                    }
                }
                return letters
            }
            if isSorted, counts == nil { _ = try output.add(rows.sorted { $0.at > $1.at }) }
            counts?.print(isJSON: list.json)
            try output.end()
            unread.report()
            let isEmpty = (counts?.sum ?? output.written) == 0
            let status = isEmpty ? try await DeadLetterSweep.reportNothing(letters, filter) : 0
            try unread.check()
            if status != 0 { throw ExitCode(status) }
        }
    }
}
