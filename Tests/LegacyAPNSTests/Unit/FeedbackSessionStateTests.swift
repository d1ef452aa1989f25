import NIOCore
import NIOPosix
import TestSupport
import Testing

@testable import APNS
@testable import LegacyAPNS

@Suite("The state of a connection to a feedback service")
struct FeedbackSessionStateTests {
    private static let endpoint = APNSEndpoint(host: "feedback.example", port: 2196)

    private static func at(_ seconds: Double) -> NIODeadline {
        .uptimeNanoseconds(1_000_000_000_000 + UInt64(seconds * 1e9))
    }

    private static func connected() -> FeedbackSessionState {
        var state = FeedbackSessionState(endpoint)
        state.handshakeBegan(now: at(0))
        state.handshakeCompleted()
        return state
    }

    private static func tuples(_ count: Int) -> ByteBuffer {
        ByteBuffer(bytes: (0..<count).flatMap { _ in FeedbackServer.tuple(1, "00fc") })
    }

    private enum Gist: Equatable { case tuples(Int), wait, end, failure(String) }

    private static func gist(_ answer: FeedbackSessionState.Answer) -> Gist {
        switch answer {
        case .tuples(let tuples): .tuples(tuples.count)
        case .wait: .wait
        case .end(nil): .end
        case .end(let error?): .failure("\(error)")
        }
    }

    private static func next(_ state: inout FeedbackSessionState, atMost count: Int = 10, at time: Double = 1) -> Gist {
        gist(state.next(atMost: count, now: at(time)))
    }

    private static func isFailure(_ gist: Gist, _ words: String) -> Bool {
        if case .failure(let text) = gist { text.contains(words) } else { false }
    }

    @Test("received records are delivered before the end is reported, however it ended", arguments: 0..<4)
    func order(ending: Int) {
        var state = Self.connected()
        state.received(Self.tuples(25), now: Self.at(1))
        switch ending {
        case 0: state.closed()
        case 1: state.failed(IOError(errnoCode: ECONNRESET, reason: "reset"))
        case 2: state.received(ByteBuffer(bytes: [UInt8](repeating: 0xFF, count: 6)), now: Self.at(1))
        default:
            state.received(ByteBuffer(bytes: [0, 0]), now: Self.at(1))
            state.closed()
        }
        let given = (0..<4).map { _ in Self.next(&state) }
        #expect(given.prefix(3) == [.tuples(10), .tuples(10), .tuples(5)])
        let words = ["", "broke", "protocol", "in the middle of a tuple, after 2 bytes"][ending]
        #expect(ending == 0 ? given[3] == .end : Self.isFailure(given[3], words), "\(given[3])")
        let again = Self.next(&state)
        #expect(again == given[3])
    }

    @Test("silence counts only during a read, and from the last received bytes")
    func silence() {
        var state = Self.connected()
        #expect(state.deadline == nil)
        #expect(Self.next(&state, at: 100) == .wait)
        #expect(state.deadline == Self.at(160))
        // Half a tuple is no answer, but it ends the silence.
        state.received(ByteBuffer(bytes: [0, 0, 0]), now: Self.at(159))
        #expect(Self.next(&state, at: 159) == .wait)
        #expect(state.deadline == Self.at(219))
        state.received(ByteBuffer(bytes: [0, 0, 1, 7]), now: Self.at(200))
        #expect(Self.next(&state, at: 200) == .tuples(1))
        // Redis is unavailable for an hour, so there is no read.
        #expect(state.deadline == nil)
        state.timePassed(now: Self.at(4000))
        #expect(!state.hasEnded)
        #expect(Self.next(&state, at: 4000) == .wait)
        state.timePassed(now: Self.at(4059))
        #expect(!state.hasEnded)
        state.timePassed(now: Self.at(4060))
        #expect(state.hasEnded)
        let last = Self.next(&state, at: 4060)
        #expect(Self.isFailure(last, "sent nothing for 60 s"))
    }

    @Test("TLS that is not set up in time is an error, and so is a server that closes the connection before that")
    func handshake() {
        var slow = FeedbackSessionState(Self.endpoint)
        #expect(slow.deadline == nil)
        slow.handshakeBegan(now: Self.at(0))
        #expect(slow.deadline == Self.at(10))
        slow.timePassed(now: Self.at(10))
        let late = Self.next(&slow)
        #expect(Self.isFailure(late, "TLS was not set up within 10 s"))
        var refused = FeedbackSessionState(Self.endpoint)
        refused.handshakeBegan(now: Self.at(0))
        refused.closed()
        let closed = Self.next(&refused)
        #expect(Self.isFailure(closed, "may not accept the certificate"))
    }

    @Test("after a stop, records in transit are still read, until silence or a time limit")
    func stop() {
        var state = Self.connected()
        #expect(Self.next(&state, at: 0) == .wait)
        state.stop(now: Self.at(30))
        #expect(state.deadline == Self.at(30.5))
        for time in 0..<10 {
            let now = 30.25 + Double(time) / 4
            state.received(Self.tuples(1), now: Self.at(now))
            #expect(Self.next(&state, at: now) == .tuples(1))
            #expect(Self.next(&state, at: now) == .wait)
        }
        state.received(Self.tuples(3), now: Self.at(34.9))
        #expect(Self.next(&state, atMost: 2, at: 36) == .tuples(2))
        #expect(Self.next(&state, atMost: 2, at: 36) == .tuples(1))
        let last = Self.next(&state, at: 36)
        #expect(Self.isFailure(last, "is stopping"))
    }

    @Test("a service that ends after a stop has been read to its end")
    func stopAndEnd() {
        var state = Self.connected()
        state.stop(now: Self.at(0))
        #expect(Self.next(&state, at: 0) == .wait)
        state.received(Self.tuples(1), now: Self.at(0.1))
        state.closed()
        #expect(Self.next(&state, at: 0.1) == .tuples(1))
        #expect(Self.next(&state, at: 0.1) == .end)
    }

    @Test("the first error is reported")
    func firstError() {
        var state = Self.connected()
        state.failed(IOError(errnoCode: ECONNRESET, reason: "reset"))
        state.failed(APNSConnectionError.shutdown(Self.endpoint))
        state.closed()
        let last = Self.next(&state)
        #expect(Self.isFailure(last, "Connection reset by peer"), "\(last)")
    }
}

@Suite("The schedule of feedback services")
struct FeedbackScheduleTests {
    private static func at(_ seconds: Int64) -> NIODeadline {
        .uptimeNanoseconds(1_000_000_000_000) + .seconds(seconds)
    }

    @Test("first within a tenth of the interval and a minute, and then at the interval, however long a round takes")
    func schedule() {
        for (interval, spread) in [(100 as Int64, 10 as Int64), (3600, 60)] {
            let first = FeedbackSchedule(interval: .seconds(interval), now: Self.at(0), random: 0)
            #expect(first.next == Self.at(0))
            let last = FeedbackSchedule(interval: .seconds(interval), now: Self.at(0), random: 1)
            #expect(last.next == Self.at(spread))
        }
        var schedule = FeedbackSchedule(interval: .seconds(100), now: Self.at(0), random: 0.5)
        schedule.finished(now: Self.at(7))
        #expect(schedule.next == Self.at(105))
        schedule.finished(now: Self.at(204))
        #expect(schedule.next == Self.at(205))
        // Polls that are missed during a long poll are skipped.
        schedule.finished(now: Self.at(600))
        #expect(schedule.next == Self.at(605))
        schedule.finished(now: Self.at(705))
        #expect(schedule.next == Self.at(805))
    }
}

@Suite("The address of a feedback service")
struct FeedbackEndpointTests {
    @Test("is Apple's former address, or port 2196 of the same host")
    func defaults() {
        #expect(APNSEndpoint.production.feedback == APNSEndpoint(host: "feedback.push.apple.com", port: 2196))
        #expect(APNSEndpoint.sandbox.feedback == APNSEndpoint(host: "feedback.sandbox.push.apple.com", port: 2196))
        let gateway = APNSEndpoint(host: "gateway.sandbox.push.apple.com", port: 2195)
        #expect(gateway.feedback == .sandboxFeedback)
        #expect(
            APNSEndpoint(host: "push.example", port: 8443).feedback == APNSEndpoint(host: "push.example", port: 2196))
    }

    @Test("is read as people write it")
    func reading() {
        #expect(APNSEndpoint(feedback: "production") == .productionFeedback)
        #expect(APNSEndpoint(feedback: "sandbox") == .sandboxFeedback)
        #expect(APNSEndpoint(feedback: "push.example") == APNSEndpoint(host: "push.example", port: 2196))
        #expect(APNSEndpoint(feedback: "[::1]:99") == APNSEndpoint(host: "::1", port: 99))
        for text in ["", "a b", "x:0", "https://x", "x:99999", "-:+1"] {
            #expect(APNSEndpoint(feedback: text) == nil, "\(text)")
        }
    }
}
