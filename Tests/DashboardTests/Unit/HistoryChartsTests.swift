import PushQueue
import Testing
import WebPages

@testable import Dashboard
@testable import Operations

@Suite("The charts of the history")
struct HistoryChartsTests {
    /// A time in milliseconds since 1970: 2026-11-21T14:05:00Z.
    private static let time: Int64 = 1_795_269_900_000
    private static let times = ChartTimes(first: time - 59 * 60_000, step: 60_000, count: 60)

    private static func links(_ base: String = "", queues: [String]) -> ChartLinks {
        ChartLinks(Links(base: base), times, queues: queues)
    }

    private static func entry(
        _ action: AuditEntry.Action, _ subject: String, minutesAgo: Int64, count: Int? = nil, detail: String? = nil,
        _ ending: AuditEntry.Ending = .done
    ) -> AuditEntry {
        var entry = AuditEntry(
            action, subject, by: "ada", count: count, detail: detail, ending: ending, via: .web)
        entry.at = time - minutesAgo * 60_000
        return entry
    }

    private static func worker(_ name: String, _ version: String, minutesAgo: Int64?) -> WorkerStatus {
        var worker = WorkerStatus(name: name)
        worker.version = version
        worker.startedAt = minutesAgo.map { time - $0 * 60_000 }
        return worker
    }

    private static func changes(_ entries: [AuditEntry], _ workers: [WorkerStatus] = []) -> [DeliveryChange] {
        DeliveryChange.all(entries, workers, in: times, of: ["news"])
    }

    @Test(
        "A column leads to what it counts, if there is a list of that",
        arguments: [
            (Outcome.dead, "/dead?queue=a%20b&since=2026-11-21T14%3A04%3A00Z&until=2026-11-21T14%3A05%3A00Z"),
            (
                .cancelled,
                "/dead?queue=a%20b&reason=Cancelled&since=2026-11-21T14%3A04%3A00Z&until=2026-11-21T14%3A05%3A00Z"
            ),
            (.invalidToken, "/invalid?since=2026-11-21T14%3A04%3A00Z&until=2026-11-21T14%3A05%3A00Z"),
            (.delivered, nil), (.expired, nil), (.dropped, nil), (.suppressed, nil),
        ] as [(Outcome, String?)])
    func outcomes(outcome: Outcome, path: String?) {
        #expect(Self.links(queues: ["a b"]).path(of: outcome, 58) == path)
    }

    @Test("A reason of retries leads to the jobs that wait with it")
    func reasons() {
        #expect(
            Self.links("/push", queues: []).path(ofRetries: "HTTP 502")
                == "/push/jobs?state=retrying&reason=HTTP%20502")
        #expect(Self.links(queues: ["news"]).path(ofRetries: MinuteCounts.otherReason) == nil)
    }

    @Test("Actions that change how notifications are sent are marked, newest first, and others are not")
    func actions() {
        let entries = [
            Self.entry(.pause, "queue news", minutesAgo: 2, detail: "wrong template"),
            Self.entry(.pause, "queue other", minutesAgo: 3), Self.entry(.resume, "app shop", minutesAgo: 4),
            Self.entry(.cancelJobs, "queue news, state=waiting", minutesAgo: 50, count: 1200),
            Self.entry(.cancelCampaign, "campaign spring", minutesAgo: 5, .failed),
            Self.entry(.sendCampaign, "campaign sale", minutesAgo: 6, .refused),
            Self.entry(.testSend, "queue news", minutesAgo: 7), Self.entry(.pause, "queue news", minutesAgo: 60),
        ]
        let changes = Self.changes(entries)
        #expect(
            changes.map(\.mark) == [
                "14:03 Paused queue news (ada: wrong template)", "14:01 Resumed app shop (ada)",
                "14:00 Cancelled campaign spring, which failed (ada)",
                "13:15 Cancelled jobs: queue news, state=waiting (1,200) (ada)",
            ])
        #expect(changes[0].by == "ada" && changes[0].detail == "wrong template")
    }

    @Test("Workers of a version that start within ten minutes are one deployment")
    func starts() {
        let workers = [
            Self.worker("a", "1.2.0", minutesAgo: 8), Self.worker("b", "1.2.0", minutesAgo: 5),
            Self.worker("c", "1.1.0", minutesAgo: 7), Self.worker("d", "1.2.0", minutesAgo: 30),
            Self.worker("e", "1.1.0", minutesAgo: 500), Self.worker("f", "", minutesAgo: 1),
            Self.worker("g", "1.2.0", minutesAgo: nil),
        ]
        let changes = Self.changes([Self.entry(.stop, "worker x", minutesAgo: 6)], workers)
        #expect(
            changes.map(\.text) == [
                "Worker f started", "Stopped worker x", "Worker c started with version 1.1.0",
                "2 workers started with version 1.2.0", "Worker d started with version 1.2.0",
            ])
        #expect(changes.map(\.detail) == [nil, nil, nil, "a, b", nil])
    }

    @Test("Each range has a spelling of its own, and the counters of minutes that live long enough")
    func spans() {
        #expect(QueueHistory.Span.allCases.map(\.rawValue) == ["15m", "1h", "6h", "24h", "7d", "40d"])
        for span in QueueHistory.Span.allCases {
            // A minute's counters are kept for 25 hours, a day's for 40 days.
            let length = span.step * Int64(span.count)
            #expect(length <= (span.hasMinutes ? 25 * 3_600_000 : 40 * 86_400_000), "\(span)")
            #expect(span.count <= 72, "\(span)")
        }
    }
}
