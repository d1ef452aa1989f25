import PushQueue
import Testing
import WebPages

@testable import Dashboard
@testable import Operations

@Suite("Queues, workers, apps and servers on their pages")
struct FleetPagesTests {
    private static func worker(
        _ name: String = "vm.7.ab", _ state: WorkerStatus.State = .running, claimed: Int = 3,
        lease: Int64 = 25_000,
        late: Int64? = nil, notReady: [String] = []
    ) -> WorkerStatus {
        var worker = WorkerStatus(name: name)
        (worker.state, worker.claimed, worker.leaseLeftMs, worker.latenessMs) = (state, claimed, lease, late)
        worker.notReady = notReady
        return worker
    }

    @Test("The keys of fair are text, with the number of further ones, and a queue without waiting jobs has none.")
    func shares() {
        #expect(QueuePage.card(QueueShares(count: 0, waitingBytes: 0, largest: [])).text.isEmpty)
        let largest = ["<b>", "", nil].map { QueueShares.Share(key: $0, waitingBytes: 2048) }
        let text = QueuePage.card(QueueShares(count: 12, waitingBytes: 9000, largest: largest)).text
        for part in ["&lt;b&gt;", "jobs without fair", "further keys", "2.0 KiB", "9 keys more"] {
            #expect(text.contains(part), "\(part) in \(text)")
        }
    }

    @Test(
        "a worker that hangs, one that runs and one that is not ready differ",
        arguments: [
            (Self.worker(), "running", Elements.Tone.good, "The worker claims and sends jobs."),
            (
                Self.worker(late: 12_000), "no heartbeat", .bad,
                "No heartbeat for 12 s: its process hangs, is stopped, or cannot reach Redis. Other workers reclaim its "
                    + "3 claimed jobs when its lease ends, in 25 s."
            ),
            // The last report of a frozen worker is out of date.
            (
                Self.worker(claimed: 1, lease: -2000, late: 40_000, notReady: ["the app shop is paused: x"]),
                "no heartbeat", .bad,
                "No heartbeat for 40 s: its process hangs, is stopped, or cannot reach Redis. Other workers reclaim its "
                    + "1 claimed job because its lease has ended."
            ),
            (
                Self.worker(notReady: ["Redis refuses claims", "the app shop is paused: x"]), "not ready", .warning,
                "The worker reports problems: Redis refuses claims; the app shop is paused: x."
            ),
            (
                Self.worker("a", .quiet), "quiet", .warning,
                "An operator asked the worker to claim no jobs. It keeps running, and claims jobs again after the action Work."
            ),
            (
                Self.worker("a", .draining), "draining", .warning,
                "The worker finishes its 3 claimed jobs, claims no more, and exits."
            ),
            (
                Self.worker("a", .gone, lease: -90_000), "lease expired", .bad,
                "The worker's lease ended 90 s ago. Other workers of its queues reclaim its 3 claimed jobs."
            ),
            (
                Self.worker("a", .gone, claimed: 0, lease: -90_000), "lease expired", .bad,
                "The worker's lease ended 90 s ago. It has no claimed jobs."
            ),
            (
                Self.worker("a", .unknown), "unknown", .quiet,
                "The worker has a lease, but this version cannot read its report."
            ),
        ])
    func condition(worker: WorkerStatus, word: String, tone: Elements.Tone, sentence: String) {
        let condition = WorkerCondition(worker)
        #expect(condition.word == word && condition.tone == tone)
        #expect(condition.sentence == sentence)
    }

    private static let now: Int64 = 1_800_000_000_000

    private static func app(_ state: AppStatus.State, _ change: (inout AppStatus) -> Void = { _ in })
        -> AppStatus
    {
        var app = AppStatus(name: "shop")
        (app.state, app.endpoints, app.lanes) = (state, ["api.push.apple.com:443"], 4)
        change(&app)
        return app
    }

    @Test(
        "the state of an app is a word and a sentence",
        arguments: [
            (
                Self.app(.paused) {
                    $0.paused = PauseRecord(reason: "a new key", since: now - 180_000, by: "ana")
                }, "paused", Elements.Tone.warning,
                "An operator has paused the app for 3 min, by ana: a new key. Its jobs wait until an operator resumes it."
            ),
            (
                Self.app(.unavailable) { $0.lanesSlow = 1 }, "unavailable", .bad,
                "api.push.apple.com:443 does not answer, or answers only with errors. The jobs are kept, and sent later."
            ),
            (
                Self.app(.unconnected) { $0.failure = "connection refused" }, "no connection", .bad,
                "There is no connection to api.push.apple.com:443: connection refused."
            ),
            (
                Self.app(.connected) { ($0.connections, $0.streams) = (1, 30) }, "connected", .good,
                "APNs accepts the app. 1 connection, 30 requests in flight."
            ),
            (Self.app(.unknown), "unknown", .quiet, "No running worker reports the app."),
        ])
    func appState(app: AppStatus, word: String, tone: Elements.Tone, sentence: String) {
        let state = AppState(app, now: Self.now)
        #expect(state.word == word && state.tone == tone)
        #expect(state.sentence == sentence)
    }

    @Test(
        "the memory of a server is shown with a warning before it is full",
        arguments: [
            (0, Elements.Tone.good), (700, .good), (750, .warning), (899, .warning), (900, .bad), (1100, .bad),
        ])
    func memory(used: Int, tone: Elements.Tone) {
        #expect(RedisPage.memory(ServerInfo("used_memory:\(used)\r\nmaxmemory:1000\r\n")).tone == tone)
        #expect(RedisPage.memory(ServerInfo("used_memory:\(used)\r\nmaxmemory:0\r\n")).tone == .good)
    }
}
