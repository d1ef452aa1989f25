import ArgumentParser

struct Invalid: ParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Look at the set of invalid device tokens, take it out as a list, or repair it.",
        discussion: """
            The set is one for all queues. Workers do not send to what is in it.
            """,
        subcommands: [InvalidList.self, InvalidExport.self, InvalidRemove.self])
}
