import ArgumentParser
import PushQueue

struct Quiet: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Have workers take no more jobs, finish what they have, and stay.",
        discussion: """
            For a moment's peace before a deployment, or to look at one worker. A quiet worker keeps its leases, answers its \
            health check with `not ready`, and goes on with `apns-worker quiet --undo`; SIGTSTP and SIGCONT do the same to a \
            process. An order reaches a worker within about ten seconds, and is forgotten after ten minutes if none does.

              apns-worker quiet web-3              # the only worker of that host
              apns-worker quiet --all --wait       # and exit 0 when nothing is under way any more
            """)

    @OptionGroup var order: OrderOptions

    @Flag(help: "Have them take jobs again.")
    var undo = false

    func run() async throws {
        if undo {
            return try await order.give(
                .work,
                .init(
                    question: "This lets workers take jobs again",
                    told: "jobs are taken again within a few seconds",
                    done: "takes jobs again",
                    isDone: { status, name in
                        status.workers.contains { $0.name == name && $0.state == .running }
                    }))
        }
        try await order.give(
            .quiet,
            .init(
                question: "This makes workers quiet: nobody takes jobs of their queues then, unless there are others",
                told: "no more jobs are taken in a few seconds; `apns-worker quiet --undo` ends that",
                done: "is quiet, with nothing under way",
                isDone: { status, name in
                    status.workers.contains {
                        $0.name == name && $0.state == .quiet && $0.inFlight == 0 && $0.claimed == 0
                    }
                }))
    }
}
