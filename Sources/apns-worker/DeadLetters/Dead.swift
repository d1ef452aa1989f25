import ArgumentParser

struct Dead: ParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Look at dead letters: what could not be sent, and why.",
        discussion: """
            A dead letter has the job as the producer wrote it, the reason, and what else is known. \
            `apns-worker requeue` puts them back into the queue.
            """,
        subcommands: [DeadList.self, DeadShow.self, DeadDelete.self])
}
