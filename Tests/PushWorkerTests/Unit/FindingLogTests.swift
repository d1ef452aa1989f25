import PushQueue
import Testing

@testable import PushWorker

@Suite("The log of findings about Redis")
struct FindingLogTests {
    private var log = FindingLog()
    private func finding(_ kind: QueueServer.Finding.Kind) -> QueueServer.Finding {
        .init(kind, "message of \(kind)", advice: "advice")
    }

    private func update(_ log: inout FindingLog, _ kinds: QueueServer.Finding.Kind...) -> [FindingLog.Line] {
        log.update(kinds.map(finding))
    }

    @Test("a finding is logged once as long as it lasts, and its end once")
    mutating func once() {
        #expect(update(&log, .evicts, .notPersistent) == [.found(finding(.evicts)), .found(finding(.notPersistent))])
        #expect(update(&log, .evicts, .notPersistent) == [])
        #expect(update(&log, .notPersistent) == [.ended(.evicts)])
        #expect(update(&log, .notPersistent) == [])
        #expect(update(&log, .evicts, .notPersistent) == [.found(finding(.evicts))])
    }

    @Test("memory that fluctuates at its limit is logged when it gets worse, and when it has recovered")
    mutating func memory() {
        #expect(update(&log, .nearlyFull) == [.found(finding(.nearlyFull))])
        #expect(update(&log, .full) == [.found(finding(.full))])
        #expect(update(&log, .nearlyFull) == [] && update(&log, .full) == [] && update(&log, .nearlyFull) == [])
        #expect(update(&log) == [.ended(.full)])
        #expect(update(&log, .full) == [.found(finding(.full))])
        #expect(update(&log) == [.ended(.full)] && update(&log) == [])
        #expect(update(&log, .nearlyFull) == [.found(finding(.nearlyFull))] && update(&log) == [.ended(.nearlyFull)])
    }

    @Test("problems that lanes detect themselves are logged by them")
    mutating func refusals() { #expect(update(&log, .refusesWrites, .replica) == [] && update(&log) == []) }

    @Test("a finding that could not be looked for has not ended")
    mutating func unseen() {
        #expect(update(&log, .notPersistent, .full, .evicts, .tooOld).count == 4)
        #expect(update(&log, .notReported) == [.found(finding(.notReported))])
        #expect(
            update(&log, .notPersistent) == [.ended(.tooOld), .ended(.full), .ended(.evicts), .ended(.notReported)])
        // Redis still accepts jobs without a replica if it has no replica, so `noMinimumOfReplicas` has not ended.
        #expect(update(&log, .noMinimumOfReplicas) == [.found(finding(.noMinimumOfReplicas)), .ended(.notPersistent)])
        #expect(update(&log, .noReplica) == [.found(finding(.noReplica))])
        #expect(update(&log, .noMinimumOfReplicas) == [.ended(.noReplica)])
        #expect(update(&log) == [.ended(.noMinimumOfReplicas)])
    }

    @Test("each end has its own message")
    func endings() {
        for kind in QueueServer.Finding.Kind.allCases { #expect(kind.endingSentence.hasPrefix("Redis ")) }
    }
}
