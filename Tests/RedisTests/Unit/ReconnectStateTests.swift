import NIOCore
import Sockets
import TestSupport
import Testing

@testable import Redis

@Suite("Connecting again")
struct ReconnectStateTests {
    let error = RedisError.connect(address: "r:1", reason: "refused")
    let backoff = Backoff(first: .milliseconds(50), longest: .seconds(5))
    let start = NIODeadline.uptimeNanoseconds(1_000_000_000_000)

    @Test("continues with the longer wait while connections do not last, and with the shortest once one does")
    func flapping() {
        var state = ReconnectState(backoff: backoff)
        var now = start
        #expect(state.start() == true)
        var waits: [TimeAmount?] = []
        for _ in 0..<4 {
            _ = state.connected(at: now)
            now = now + .milliseconds(1)
            waits.append(state.failed(because: error, at: now, random: 1)?.delay)
            #expect(state.waited() == true)
        }
        #expect(waits == [50, 100, 200, 400].map { .milliseconds($0) })
        _ = state.connected(at: now)
        now = now + .seconds(10)
        #expect(state.failed(because: error, at: now, random: 1)?.delay == .milliseconds(50))
    }

    @Test("waits a second at most while the server answers, such as a replica that is promoted soon")
    func answered() {
        var state = ReconnectState(backoff: backoff)
        #expect(state.start() == true)
        var waits: [TimeAmount?] = []
        for _ in 0..<9 {
            _ = state.connected(at: start)
            let error = RedisError.server(
                RedisServerError(text: "READONLY You can't write against a read only replica."))
            waits.append(state.failed(because: error, at: start, random: 1)?.delay)
            #expect(state.waited() == true)
        }
        #expect(waits == [50, 100, 200, 400, 800, 1000, 1000, 1000, 1000].map { .milliseconds($0) })
    }

    @Test("reports the first failure, then one in thirty seconds, and the end of the outage")
    func reports() {
        var state = ReconnectState(backoff: backoff)
        _ = state.start()
        var reported: [Int] = []
        for second in 0..<70 {
            if state.failed(because: error, at: start + .seconds(Int64(second)), random: 1)?.isReported == true {
                reported.append(second)
            }
            #expect(state.waited() == true)
        }
        #expect(reported == [0, 30, 60])
        let end = state.connected(at: start + .seconds(70))
        #expect(end == ReconnectState.Recovery(after: .seconds(70), failures: 70))
    }

    @Test("of outages in quick succession reports one in thirty seconds, and the end of that one")
    func successiveOutages() {
        var state = ReconnectState(backoff: backoff)
        _ = state.start()
        _ = state.connected(at: start)
        var reported: [Int] = []
        var recovered: [Int] = []
        for second in 1..<70 {
            let now = start + .seconds(Int64(second))
            if state.failed(because: error, at: now, random: 1)?.isReported == true { reported.append(second) }
            #expect(state.waited() == true)
            if state.connected(at: now + .milliseconds(1)) != nil { recovered.append(second) }
        }
        #expect(reported == [1, 31, 61] && recovered == reported)
    }

    @Test("in any order of events, tries one at a time, waits within its limits and reports rarely", arguments: 0..<300)
    func anyOrder(seed: UInt64) {
        var random = SeededGenerator(seed: seed)
        var state = ReconnectState(backoff: backoff)
        var now = start
        // The state as seen by a reader of the log and by the socket.
        var (isStarted, isTrying, isReady, isClosed) = (false, false, false, false)
        var lastReport: NIODeadline?
        var reportedOutage: NIODeadline?
        var outageBegan: NIODeadline?
        for _ in 0..<400 {
            let longest: Int64 = Bool.random(using: &random) ? 20 : 9000
            now = now + .milliseconds(Int64.random(in: 0...longest, using: &random))
            switch Int.random(in: 0..<100, using: &random) {
            case 0..<2:
                let starts = state.start()
                #expect(starts == (!isStarted && !isClosed))
                if starts { (isStarted, isTrying) = (true, true) }
            case 2..<35:
                #expect((state.phase == .connecting) == isTrying)
                let recovery = state.connected(at: now)
                #expect((recovery != nil) == (isTrying && reportedOutage != nil))
                if let recovery, let outageBegan { #expect(recovery.after == now - outageBegan) }
                guard isTrying else { continue }
                #expect(state.phase == .ready(since: now))
                (isTrying, isReady, reportedOutage, outageBegan) = (false, true, nil, nil)
            case 35..<70:
                let retry = state.failed(because: error, at: now, random: Double.random(in: 0...1, using: &random))
                #expect((retry != nil) == (isTrying || isReady))
                guard let retry else { continue }
                (isTrying, isReady) = (false, false)
                outageBegan = outageBegan ?? now
                #expect(retry.delay >= .zero && retry.delay <= backoff.longest)
                if retry.isReported {
                    if let lastReport { #expect(now - lastReport >= ReconnectState.reportInterval) }
                    lastReport = now
                    reportedOutage = now
                } else {
                    #expect(lastReport.map { now - $0 < ReconnectState.reportInterval } == true)
                }
            case 70..<98:
                let tries = state.waited()
                #expect(tries == (isStarted && !isTrying && !isReady && !isClosed))
                if tries { isTrying = true }
            default:
                guard Int.random(in: 0..<10, using: &random) == 0 else { continue }
                state.close(because: error)
                (isTrying, isReady, isClosed) = (false, false, true)
            }
        }
        // Unless the client is closed, it connects in the end, whatever happened before.
        guard !isClosed, isStarted else { return }
        if !isTrying, !isReady { #expect(state.waited() == true) }
        if !isReady { #expect(state.phase == .connecting) }
    }
}
