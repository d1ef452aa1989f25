import NIOCore
import Testing

@testable import APNS

@Suite("A connection's wear")
struct ConnectionWearTests {
    private let start = NIODeadline.uptimeNanoseconds(1_000_000_000_000)

    private func open(_ change: (inout HTTP2Limits) -> Void = { _ in }) -> HTTP2ConnectionState {
        var limits = HTTP2Limits()
        change(&limits)
        var state = HTTP2ConnectionState(limits)
        state.handshakeCompleted(now: start)
        state.settings(maximumStreams: 10)
        return state
    }

    private func answer(_ state: inout HTTP2ConnectionState, status: Int) {
        state.submitted()
        _ = state.ended(
            stream: 1, code: 0, isWritten: true, cancelled: nil, response: Response(status: status))
    }

    @Test("is reported once when stream identifiers run out, and no request is accepted after the last")
    func streams() {
        var state = open()
        let first = state.submitted(stream: HTTP2ConnectionState.wornOutStream - 2)
        #expect(!first)
        #expect(state.replacementReason(now: start) == nil)
        let second = state.submitted(stream: HTTP2ConnectionState.wornOutStream)
        #expect(second)
        #expect(state.replacementReason(now: start) == "its stream identifiers have run out")
        let third = state.submitted(stream: HTTP2ConnectionState.wornOutStream + 2)
        #expect(!third)
        #expect(state.freeStreams == 7)
        state.submitted(stream: .max - 2)
        #expect(state.freeStreams == 6)
        state.submitted(stream: .max)
        #expect(state.freeStreams == 0)
        #expect(state.phase == .draining(reason: "its stream identifiers have run out"))
        #expect(!state.isRetired)
    }

    @Test("leaves time for half a million requests")
    func room() {
        #expect((Int32.max - HTTP2ConnectionState.wornOutStream) / 2 >= 500_000)
        // Clients' identifiers are odd.
        #expect(HTTP2ConnectionState.wornOutStream % 2 == 1)
    }

    @Test("is its age, if a maximum is set")
    func age() {
        let state = open { $0.lifetime = .minutes(30) }
        #expect(state.replacementReason(now: start + .minutes(30) - .nanoseconds(1)) == nil)
        #expect(state.replacementReason(now: start + .minutes(30)) == "it has reached its maximum age")
        #expect(open().replacementReason(now: start + .hours(10_000)) == nil)
        var draining = state
        draining.retire(reason: "x")
        #expect(draining.replacementReason(now: start + .minutes(30)) == nil)
    }

    @Test("of a pool's connections has jitter of up to a tenth, and is never above what is set")
    func jitter() throws {
        var configuration = ConnectionPool.Configuration(
            PoolConfiguration(endpoint: APNSEndpoint(host: "localhost", port: 1), tls: try .client(.init())))
        #expect(configuration.connections.age(jitter: 0.5) == nil)
        configuration.maximumAge = .hours(1)
        #expect(configuration.connections.age(jitter: 0) == .hours(1))
        #expect(configuration.connections.age(jitter: 1) == .minutes(54))
    }

    @Test("is consecutive answers with status 500, and any other answer resets the count")
    func serverErrors() {
        var state = open()
        for count in 1...4 {
            answer(&state, status: 500)
            #expect(state.serverErrorsInARow == count)
        }
        answer(&state, status: 400)
        #expect(state.serverErrorsInARow == 0)
        answer(&state, status: 500)
        #expect(state.serverErrorsInARow == 1)
        // Unanswered requests do not count.
        state.submitted()
        _ = state.ended(stream: 1, code: 2, isWritten: true, cancelled: nil, response: nil)
        #expect(state.serverErrorsInARow == 1)
        answer(&state, status: 503)
        #expect(state.serverErrorsInARow == 0)
    }

    @Test("differs from use: requests in flight at a check, or since the last one")
    func lastUsed() {
        var state = open()
        #expect(state.lastUsed == start)
        _ = state.check(now: start + .seconds(1))
        #expect(state.lastUsed == start)
        state.submitted()
        _ = state.check(now: start + .seconds(2))
        _ = state.check(now: start + .seconds(3))
        #expect(state.lastUsed == start + .seconds(3))
        _ = state.ended(stream: 1, code: 0, isWritten: true, cancelled: nil, response: Response(status: 200))
        _ = state.check(now: start + .seconds(4))
        #expect(state.lastUsed == start + .seconds(3))
        answer(&state, status: 200)
        _ = state.check(now: start + .seconds(5))
        _ = state.check(now: start + .seconds(6))
        #expect(state.lastUsed == start + .seconds(5))
    }

    @Test("is a server that reads nothing, whatever it sends")
    func stalled() {
        var state = open()
        state.writability(false, now: start)
        #expect(state.freeStreams == 0)
        #expect(state.isUsable)
        for second in 1...20 {
            state.writability(false, now: start + .seconds(Int64(second)))
            state.bytesRead(1, now: start + .seconds(Int64(second)))
            #expect(state.check(now: start + .seconds(Int64(second))) == .nothing)
        }
        var resumed = state
        #expect(
            state.check(now: start + .milliseconds(20_001)) == .close("the server has read nothing for 20 s"))
        resumed.writability(true, now: start + .seconds(20))
        #expect(resumed.freeStreams == 10)
        #expect(resumed.check(now: start + .milliseconds(20_001)) == .nothing)
        resumed.writability(false, now: start + .seconds(21))
        #expect(resumed.check(now: start + .seconds(22)) == .nothing)
    }

    @Test("is a flood of bytes, which time and answers reduce")
    func flood() {
        var state = open()
        state.bytesRead(FloodGauge.burst + FloodGauge.answer + 1, now: start)
        #expect(state.flood == FloodGauge.burst + FloodGauge.answer + 1)
        state.submitted()
        #expect(state.flood != nil)
        _ = state.ended(stream: 1, code: 0, isWritten: true, cancelled: nil, response: Response(status: 200))
        #expect(state.flood != nil)
        _ = state.check(now: start)
        _ = state.check(now: start + .seconds(1))
        #expect(state.flood == nil)
    }
}
