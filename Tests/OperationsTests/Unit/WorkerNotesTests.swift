import PushQueue
import Testing

@testable import Operations

@Suite("The consequences of a command to workers")
struct WorkerNotesTests {
    private static func worker(
        _ name: String, _ queues: String, _ state: WorkerStatus.State = .running, inFlight: Int = 0,
        lateness: Int64? = nil
    ) -> WorkerStatus {
        var worker = WorkerStatus(name: name)
        worker.queues = queues.split(separator: " ").map(String.init)
        (worker.state, worker.inFlight, worker.latenessMs) = (state, inFlight, lateness)
        return worker
    }

    private static let status: FleetStatus = {
        var status = FleetStatus()
        status.workers = [
            worker("a", "bulk default", inFlight: 12), worker("b", "default"), worker("c", "other", .quiet),
            worker("d", "bulk", .gone), worker("e", "bulk", .draining, inFlight: 1),
            worker("f", "bulk", lateness: 12_000),
        ]
        var bulk = QueueStatus(name: "bulk")
        (bulk.waiting, bulk.due) = (1000, 234)
        status.queues = [bulk, QueueStatus(name: "default"), QueueStatus(name: "other")]
        return status
    }()

    private static let bulk =
        "this is the last worker of queue bulk: its 1,234 waiting jobs, and later ones, wait until another "

    @Test(
        "are the queues without another worker, the notifications in flight, and the end of the dashboard",
        arguments: [
            (
                .stop, "a",
                [
                    bulk + "starts",
                    "12 notifications are in flight, and their answers are waited for",
                    "worker a serves this dashboard, which ends with it",
                ]
            ),
            (.stop, "b", []), (.stop, "c", []),
            (.stop, "e", ["1 notification is in flight, and its answer is waited for"]),
            (
                .quiet, "a b",
                [
                    bulk + "claims them",
                    "these are the last workers of queue default: its jobs wait until another claims them",
                ]
            ), (.work, "a b", []),
        ] as [(WorkerCommand.Kind, String, [String])])
    func notes(kind: WorkerCommand.Kind, names: String, expected: [String]) {
        let names = names.split(separator: " ").map(String.init)
        let chosen = Self.status.workers.filter { names.contains($0.name) }
        #expect(WorkersChange.consequences(of: kind, on: chosen, Self.status, serving: "a") == expected)
    }
}
