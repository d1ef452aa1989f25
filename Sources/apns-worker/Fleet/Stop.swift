import ArgumentParser
import PushQueue

struct Stop: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Have workers finish what they have, give the rest back, and end, as SIGTERM does.",
        discussion: """
            Whatever started a worker may start another one in its place: a container is restarted, and to have fewer of \
            them is for whoever runs them to say. An order reaches a worker within about ten seconds, and is forgotten after \
            ten minutes if none does.
            """)

    @OptionGroup var order: OrderOptions

    func run() async throws {
        try await order.give(
            .stop,
            .init(
                question: "This ends workers: their jobs are finished or given back",
                told: "it finishes what it has, gives the rest back and ends",
                done: "has ended",
                isDone: { status, name in !status.workers.contains { $0.name == name && $0.state != .gone } }))
    }
}
