import Logging
import Testing

@testable import PushWorker

@Suite("The summary of a worker's minute")
struct WorkSummaryTests {
    @Test("has the work since the last one, and is omitted without any")
    func since() {
        var summary = WorkSummary()
        var counters = LaneCounters()
        #expect(summary.next(counters, .init(), seconds: 60) == nil)
        counters.outcomes[.delivered] = 600
        counters.outcomes[.dead] = 2
        let load = WorkSummary.Load(inFlight: 7, waiting: 3, connections: 2, connectionsMade: 3)
        #expect(
            summary.next(counters, load, seconds: 60.2) == [
                "delivered": "600", "invalid_token": "0", "retried": "0", "dead": "2", "expired": "0",
                "delivered_per_second": "9.9", "in_flight": "7", "waiting": "3", "seconds": "60",
                "connections": "2", "connections_made": "3", "connections_lost": "1",
            ])
        #expect(summary.next(counters, load, seconds: 60) == nil)
        counters.outcomes[.delivered] += 60_000
        counters.outcomes[.suppressed] += 1
        let next = summary.next(counters, load, seconds: 60)
        #expect(next?["delivered"] == "60000" && next?["dead"] == "0" && next?["delivered_per_second"] == "1000")
        #expect(next?["suppressed"] == "1" && next?["dropped"] == nil)
        #expect(next?["connections"] == "2" && next?["connections_made"] == nil && next?["connections_lost"] == nil)
    }
}
