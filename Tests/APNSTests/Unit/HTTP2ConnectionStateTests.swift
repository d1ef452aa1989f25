import CNghttp2
import NIOCore
import TestSupport
import Testing

@testable import APNS

@Suite("The state of a connection")
struct HTTP2ConnectionStateTests {
    private let start = NIODeadline.uptimeNanoseconds(1_000_000_000_000)

    private func open(
        ownLimit: Int = 100, serverLimit: Int? = 50, lifetime: TimeAmount? = nil
    ) -> HTTP2ConnectionState {
        var limits = HTTP2Limits(maximumStreams: ownLimit)
        limits.lifetime = lifetime
        var state = HTTP2ConnectionState(limits)
        state.handshakeCompleted(now: start)
        state.settings(maximumStreams: serverLimit)
        return state
    }

    @Test("allows no stream before the first SETTINGS")
    func beforeSettings() {
        var state = HTTP2ConnectionState(.init(maximumStreams: 100))
        #expect(state.freeStreams == 0)
        #expect(!state.isUsable)
        state.handshakeCompleted(now: start)
        #expect(state.freeStreams == 0)
        #expect(!state.isUsable)
        state.settings(maximumStreams: 1000)
        #expect(state.freeStreams == 100)
        #expect(state.isUsable)
    }

    @Test(
        "uses the lower of both ends' limits", arguments: [(10, 1000, 10), (1000, 10, 10), (10, nil, 10), (10, 0, 0)])
    func limits(own: Int, server: Int?, free: Int) {
        #expect(open(ownLimit: own, serverLimit: server).freeStreams == free)
    }

    @Test("allows no stream while a lowered limit is exceeded")
    func lowered() {
        var state = open(serverLimit: 3)
        for _ in 0..<3 { state.submitted() }
        state.settings(maximumStreams: 1)
        #expect(state.freeStreams == 0)
        for left in [2, 1] {
            _ = end(&state, stream: 1, response: Response(status: 200))
            #expect(state.inFlight == left)
            #expect(state.freeStreams == 0)
        }
        _ = end(&state, stream: 5, response: Response(status: 200))
        #expect(state.freeStreams == 1)
        state.settings(maximumStreams: nil)
        #expect(state.freeStreams == 100)
    }

    private func end(
        _ state: inout HTTP2ConnectionState, stream: Int32, code: UInt32 = 0, isWritten: Bool = true,
        cancelled: RequestFailure? = nil, response: Response? = nil
    ) -> RequestResult {
        state.ended(stream: stream, code: code, isWritten: isWritten, cancelled: cancelled, response: response)
    }

    @Test("counts an answered request as answered, also if it is reset with NO_ERROR, and not if with an error")
    func answered() {
        let refusal = Response(status: 410, reason: .unregistered)
        var state = open()
        for _ in 0..<4 { state.submitted() }
        #expect(!state.hasAnswered)
        #expect(end(&state, stream: 1, response: refusal) == .response(refusal))
        #expect(state.hasAnswered && state.answers == 1)
        #expect(end(&state, stream: 3, isWritten: false, response: refusal) == .response(refusal))
        let cancel = NGHTTP2_CANCEL.rawValue
        for response in [Response(status: 200), refusal] {
            #expect(end(&state, stream: 5, code: cancel, response: response) == .uncertain(.reset(code: cancel)))
        }
        #expect(state.inFlight == 0)
    }

    @Test("distinguishes requests that were certainly not processed from those that may have been")
    func unanswered() {
        let refused = NGHTTP2_REFUSED_STREAM.rawValue
        let internalError = NGHTTP2_INTERNAL_ERROR.rawValue
        var state = open()
        for _ in 0..<7 { state.submitted() }
        #expect(end(&state, stream: 1, code: refused) == .notProcessed(.refusedStream))
        #expect(end(&state, stream: 3, code: internalError) == .uncertain(.reset(code: internalError)))
        let unwritten = end(&state, stream: 5, code: internalError, isWritten: false)
        #expect(unwritten == .notProcessed(.reset(code: internalError)))
        #expect(end(&state, stream: 7, code: 8, cancelled: .timedOut) == .uncertain(.timedOut))
        #expect(end(&state, stream: 9, code: 8, isWritten: false, cancelled: .timedOut) == .notProcessed(.timedOut))
        // A stream that ends without an error and without an answer.
        #expect(end(&state, stream: 11) == .uncertain(.reset(code: 0)))
        state.goAway(lastStream: 11, reason: "Shutdown")
        #expect(end(&state, stream: 13, code: 8) == .notProcessed(.goingAway(reason: "Shutdown")))
    }

    @Test("decides what a lost connection means for each request")
    func lost() {
        var state = open()
        for _ in 0..<3 { state.submitted() }
        #expect(state.lost(stream: 1, isWritten: true, why: "x") == .uncertain(.connectionLost("x")))
        #expect(state.lost(stream: 3, isWritten: false, why: "x") == .notProcessed(.connectionLost("x")))
        state.goAway(lastStream: 3, reason: nil)
        #expect(state.lost(stream: 5, isWritten: true, why: "x") == .notProcessed(.goingAway(reason: nil)))
        #expect(state.inFlight == 0)
    }

    @Test("accepts no more streams after a GOAWAY, whose last stream can only become lower")
    func goAway() {
        var state = open()
        state.submitted()
        state.submitted()
        state.goAway(lastStream: .max, reason: nil)
        #expect(state.freeStreams == 0)
        #expect(!state.isUsable)
        #expect(!state.isDrained)
        state.goAway(lastStream: 1, reason: "Shutdown")
        state.goAway(lastStream: 100, reason: nil)
        #expect(end(&state, stream: 3, code: 2) == .notProcessed(.goingAway(reason: "Shutdown")))
        state.settings(maximumStreams: 1000)
        #expect(state.freeStreams == 0)
        #expect(end(&state, stream: 1, response: Response(status: 200)) == .response(Response(status: 200)))
        #expect(state.isDrained)
        #expect(state.phase == .draining(reason: "Shutdown"))
        state.closed()
        state.drain(reason: "late")
        #expect(state.phase == .closed)
    }

    @Test("sends a silent server one PING, and gives up when it does not answer")
    func ping() {
        var state = open()
        state.submitted(stream: 1)
        #expect(state.check(now: start + .seconds(15)) == .nothing)
        #expect(state.check(now: start + .milliseconds(15_001)) == .sendPing)
        #expect(state.check(now: start + .milliseconds(20_001)) == .nothing)
        state.bytesRead(now: start + .milliseconds(20_001))
        #expect(state.check(now: start + .milliseconds(35_001)) == .nothing)
        #expect(state.check(now: start + .milliseconds(35_002)) == .sendPing)
        #expect(state.check(now: start + .milliseconds(40_002)) == .nothing)
        #expect(
            state.check(now: start + .milliseconds(40_003)) == .close("the server did not answer a PING within 5 s"))
    }

    @Test("sends PINGs once per hour while nothing is sent, and at once when something is")
    func idlePing() {
        var state = open()
        #expect(state.check(now: start + .hours(1)) == .nothing)
        #expect(state.check(now: start + .seconds(3601)) == .sendPing)
        state.bytesRead(now: start + .seconds(3601))
        #expect(state.check(now: start + .seconds(3650)) == .nothing)
        state.submitted(stream: 1)
        #expect(state.check(now: start + .seconds(3651)) == .sendPing, "a dead connection is found before the deadline")
    }

    @Test("gives a server a limited time to send its SETTINGS, also if it sends them byte by byte")
    func settingsTimeout() {
        var state = HTTP2ConnectionState(.init(maximumStreams: 1))
        #expect(state.check(now: start + .hours(1)) == .nothing)
        state.handshakeCompleted(now: start)
        state.bytesRead(now: start + .seconds(4))
        #expect(state.check(now: start + .seconds(5)) == .nothing)
        guard case .close(let why) = state.check(now: start + .milliseconds(5001)) else {
            Issue.record("not closed")
            return
        }
        #expect(why.hasPrefix("it set up TLS and sent no HTTP/2 SETTINGS within 5 s"))
    }

    @Test("never allows more streams than any limit, in any order of events", arguments: 0..<200)
    func anyOrder(seed: Int) {
        var generator = SeededGenerator(seed: UInt64(seed))
        var state = HTTP2ConnectionState(.init(maximumStreams: Int.random(in: 1...20, using: &generator)))
        var now = start
        var limit = 0
        var inFlight: [Int32] = []
        var nextStream: Int32 = 1
        var lastStream = Int32.max
        var isGoing = false
        let own = [state].map { state in
            var probe = state
            probe.handshakeCompleted(now: start)
            probe.settings(maximumStreams: nil)
            return probe.freeStreams
        }[0]
        for _ in 0..<300 {
            now = now + .milliseconds(Int64.random(in: 0...3000, using: &generator))
            switch Int.random(in: 0..<20, using: &generator) {
            case 0: state.handshakeCompleted(now: now)
            case 1:
                guard state.phase != .connecting else { continue }
                let server: Int? = Bool.random(using: &generator) ? nil : Int.random(in: 0...30, using: &generator)
                state.settings(maximumStreams: server)
                limit = min(own, server ?? own)
            case 2 where Int.random(in: 0..<10, using: &generator) == 0:
                lastStream = min(lastStream, Int32.random(in: 0...nextStream, using: &generator))
                state.goAway(lastStream: lastStream, reason: nil)
                isGoing = true
            case 3..<12 where state.freeStreams > 0:
                state.submitted()
                inFlight.append(nextStream)
                nextStream += 2
            case 12..<18 where !inFlight.isEmpty:
                let stream = inFlight.remove(at: Int.random(in: 0..<inFlight.count, using: &generator))
                let result = end(
                    &state, stream: stream, code: UInt32.random(in: 0...13, using: &generator),
                    isWritten: Bool.random(using: &generator))
                if stream > lastStream { #expect(result == .notProcessed(.goingAway(reason: nil))) }
            default: state.bytesRead(now: now)
            }
            #expect(state.inFlight == inFlight.count)
            #expect(state.freeStreams == (isGoing ? 0 : max(0, limit - inFlight.count)))
            #expect(state.isDrained == (isGoing && inFlight.isEmpty))
        }
    }

    private func answer(_ state: inout HTTP2ConnectionState, status: Int) {
        state.submitted()
        _ = end(&state, stream: 1, response: Response(status: status))
    }

    @Test("reports once that its stream identifiers run out, and accepts no request after the last")
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
        #expect(state.freeStreams == 47)
        state.submitted(stream: .max - 2)
        #expect(state.freeStreams == 46)
        state.submitted(stream: .max)
        #expect(state.freeStreams == 0)
        #expect(state.phase == .draining(reason: "its stream identifiers have run out"))
        #expect(!state.isRetired)
    }

    @Test("is replaced half a million requests before its stream identifiers end")
    func room() {
        #expect((Int32.max - HTTP2ConnectionState.wornOutStream) / 2 >= 500_000)
        #expect(HTTP2ConnectionState.wornOutStream % 2 == 1)
    }

    @Test("is replaced at its maximum age, if one is set")
    func age() {
        let state = open(lifetime: .minutes(30))
        #expect(state.replacementReason(now: start + .minutes(30) - .nanoseconds(1)) == nil)
        #expect(state.replacementReason(now: start + .minutes(30)) == "it has reached its maximum age")
        #expect(open().replacementReason(now: start + .hours(10_000)) == nil)
        var draining = state
        draining.retire(reason: "x")
        #expect(draining.replacementReason(now: start + .minutes(30)) == nil)
    }

    @Test("has a maximum age with jitter of up to a tenth, which is never above what is set")
    func jitter() throws {
        var configuration = ConnectionPool.Configuration(
            PoolConfiguration(endpoint: APNSEndpoint(host: "localhost", port: 1), tls: try .client(.init())))
        #expect(configuration.connections.age(jitter: 0.5) == nil)
        configuration.maximumAge = .hours(1)
        #expect(configuration.connections.age(jitter: 0) == .hours(1))
        #expect(configuration.connections.age(jitter: 1) == .minutes(54))
    }

    @Test("counts consecutive answers with status 500, and any other answer resets the count")
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
        _ = end(&state, stream: 1, code: 2)
        #expect(state.serverErrorsInARow == 1)
        answer(&state, status: 503)
        #expect(state.serverErrorsInARow == 0)
    }

    @Test("is in use with requests in flight at a check, or since the last one")
    func lastUsed() {
        var state = open()
        #expect(state.lastUsed == start)
        _ = state.check(now: start + .seconds(1))
        #expect(state.lastUsed == start)
        state.submitted()
        _ = state.check(now: start + .seconds(2))
        _ = state.check(now: start + .seconds(3))
        #expect(state.lastUsed == start + .seconds(3))
        _ = end(&state, stream: 1, response: Response(status: 200))
        _ = state.check(now: start + .seconds(4))
        #expect(state.lastUsed == start + .seconds(3))
        answer(&state, status: 200)
        _ = state.check(now: start + .seconds(5))
        _ = state.check(now: start + .seconds(6))
        #expect(state.lastUsed == start + .seconds(5))
    }

    @Test("gives up on a server that reads nothing, whatever it sends")
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
        #expect(resumed.freeStreams == 50)
        #expect(resumed.check(now: start + .milliseconds(20_001)) == .nothing)
        resumed.writability(false, now: start + .seconds(21))
        #expect(resumed.check(now: start + .seconds(22)) == .nothing)
    }

    @Test("sees a flood of bytes, which time and answers reduce")
    func flood() {
        var state = open()
        state.bytesRead(FloodGauge.burst + FloodGauge.answer + 1, now: start)
        #expect(state.flood == FloodGauge.burst + FloodGauge.answer + 1)
        state.submitted()
        #expect(state.flood != nil)
        _ = end(&state, stream: 1, response: Response(status: 200))
        #expect(state.flood != nil)
        _ = state.check(now: start)
        _ = state.check(now: start + .seconds(1))
        #expect(state.flood == nil)
    }
}
