import ArgumentParser
import Operations

struct DeadDelete: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "delete", abstract: "Delete dead letters and their jobs permanently.",
        discussion: """
            Shows the number of dead letters and asks for confirmation; without a terminal it needs --yes. Those that are added \
            after the count are not deleted.
            """)

    @OptionGroup(title: "Queue") var queue: QueueOptions

    @OptionGroup(title: "Filters") var options: DeadLetterOptions

    @OptionGroup var change: DeadLetterChangeOptions

    private var fields: Fields { options.fields(limit: change.limit, all: change.all) }

    func validate() throws {
        try change.check(.delete, fields)
        try Confirmation.check(isGiven: change.dryRun || change.yes)
    }

    func run() async throws { try await change.run(.delete, fields, queue) { _ in true } }
}
