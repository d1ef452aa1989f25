import CNghttp2
import NIOCore
import TestSupport
import Testing

@testable import APNS

@Suite("The state of a connection")
struct HTTP2ConnectionStateTests {
    private let start = NIODeadline.uptimeNanoseconds(1_000_000_000_000)

    private func open(ownLimit: Int = 100, serverLimit: Int? = 50) -> HTTP2ConnectionState {
        var state = HTTP2ConnectionState(.init(maximumStreams: ownLimit))
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
}
