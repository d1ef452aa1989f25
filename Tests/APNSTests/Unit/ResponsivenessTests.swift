import NIOCore
import Testing

@testable import APNS

@Suite("A connection's responsiveness")
struct ResponsivenessTests {
    private let start = NIODeadline.uptimeNanoseconds(1_000_000_000_000)
    private let timeout = TimeAmount.seconds(20)

    private func miss(_ state: inout Responsiveness, submitted: NIODeadline) {
        state.missedDeadline(submitted: submitted, timeout: timeout)
    }

    @Test("ends with the first missed deadline when nothing was answered in all that time")
    func wedged() {
        var state = Responsiveness()
        _ = state.look(requests: 1, answers: 0, now: start)
        #expect(state.fault == nil)
        miss(&state, submitted: start)
        #expect(state.fault == "no request was answered for 20 s")
        // A missed deadline also ends a connection that has worked before.
        state = Responsiveness()
        _ = state.look(requests: 100, answers: 99, now: start)
        miss(&state, submitted: start + .milliseconds(1))
        #expect(state.fault == "no request was answered for 20 s")
    }

    @Test("ends with the third missed deadline when no answer arrived between them")
    func threeInARow() {
        var state = Responsiveness()
        _ = state.look(requests: 100, answers: 90, now: start + .seconds(1))
        for count in 1...2 {
            miss(&state, submitted: start)
            #expect(state.missed == count && state.fault == nil)
        }
        _ = state.look(requests: 101, answers: 90, now: start + .seconds(19))
        miss(&state, submitted: start)
        #expect(state.fault == "3 requests in a row were not answered within 20 s")
    }

    @Test("continues when an answer arrives between them, however many are missed in total")
    func answersBetween() {
        var state = Responsiveness()
        for round in 1...100 {
            _ = state.look(requests: round * 10, answers: round, now: start + .seconds(Int64(round)))
            miss(&state, submitted: start + .seconds(Int64(round) - 20))
            miss(&state, submitted: start + .seconds(Int64(round) - 20))
        }
        #expect(state.fault == nil)
    }

    @Test("is reported with the changes since the last check")
    func looks() {
        var state = Responsiveness()
        var news = state.look(requests: 3, answers: 0, now: start)
        #expect(news == (3, false))
        news = state.look(requests: 5, answers: 1, now: start)
        #expect(news == (2, true))
        news = state.look(requests: 5, answers: 1, now: start)
        #expect(news == (0, false))
    }

    @Test("ends when a window has held a request up for five seconds without progress")
    func window() {
        var state = Responsiveness()
        let blockage = Blockage(stream: 33, written: 100)
        func look(_ state: inout Responsiveness, _ blockage: Blockage?, _ milliseconds: Int64) {
            state.look(blockage, patience: .seconds(5), now: start + .milliseconds(milliseconds))
        }
        look(&state, nil, 0)
        look(&state, blockage, 100)
        look(&state, blockage, 5099)
        #expect(state.fault == nil)
        var other = state
        look(&state, blockage, 5100)
        #expect(state.fault == "it has granted no flow-control window for 5 s")
        // Progress, another request, and no request each restart the wait.
        for (number, next) in [
            Blockage(stream: 33, written: 107), Blockage(stream: 35, written: 0), nil,
            blockage,
        ].enumerated() {
            look(&other, next, 5100 + Int64(number) * 5000)
            look(&other, next, 10_099 + Int64(number) * 5000)
            #expect(other.fault == nil)
        }
    }
}

@Suite("A drought of answers")
struct AnswerDroughtTests {
    private let start = NIODeadline.uptimeNanoseconds(1_000_000_000_000)

    /// Looks ten times per second.
    private func look(
        _ state: inout AnswerDrought, from: Double, to: Double, inFlight: Int, submitted: Int = 0,
        answered: Bool = false
    ) {
        for tenth in Int(from * 10)..<Int(to * 10) {
            state.add(submitted: submitted, answered: answered)
            state.look(inFlight: inFlight, now: start + .milliseconds(Int64(tenth) * 100))
        }
    }

    @Test("begins after five seconds in which requests waited, and ends with the first answer")
    func drought() {
        var state = AnswerDrought()
        look(&state, from: 0, to: 60, inFlight: 0)
        state.add(submitted: 1, answered: false)
        look(&state, from: 60, to: 64.9, inFlight: 1)
        #expect(state.state == .answered && state.isPending)
        look(&state, from: 64.9, to: 65.1, inFlight: 1)
        #expect(state.state == .unanswered)
        look(&state, from: 65.1, to: 100, inFlight: 1, submitted: 3)
        #expect(state.state == .unanswered)
        look(&state, from: 100, to: 100.1, inFlight: 1, submitted: 3, answered: true)
        #expect(state.state == .answered && !state.isPending)
    }

    @Test("does not begin with the last requests of an answered burst")
    func burst() {
        var state = AnswerDrought()
        look(&state, from: 0, to: 1, inFlight: 500, submitted: 100, answered: true)
        look(&state, from: 1, to: 60, inFlight: 3)
        #expect(state.state == .answered)
        state.foundUnresponsive()
        #expect(state.state == .answered)
    }

    @Test("does not count time in which the process stood still")
    func stoodStill() {
        var state = AnswerDrought()
        look(&state, from: 0, to: 1, inFlight: 1, submitted: 1)
        state.stoodStill(for: .seconds(39), now: start + .seconds(40))
        look(&state, from: 40, to: 40.1, inFlight: 1)
        #expect(state.state == .answered)
        look(&state, from: 40.1, to: 45, inFlight: 1)
        #expect(state.state == .unanswered)
    }

    @Test("begins at once when a connection is found unresponsive and nothing was answered since")
    func unresponsive() {
        var state = AnswerDrought()
        look(&state, from: 0, to: 0.3, inFlight: 1, submitted: 1)
        state.foundUnresponsive()
        #expect(state.state == .unanswered)
    }

    @Test("becomes a past one after a while without requests, and is forgotten after ten minutes")
    func memory() {
        var state = AnswerDrought()
        look(&state, from: 0, to: 6, inFlight: 1, submitted: 1)
        look(&state, from: 6, to: 20, inFlight: 0)
        #expect(state.state == .unanswered)
        look(&state, from: 20, to: 600, inFlight: 0)
        #expect(state.state == .unansweredLately)
        var other = state
        look(&other, from: 600, to: 607, inFlight: 0)
        #expect(other.state == .answered && !other.isPending)
        // The next unanswered request begins a drought at once.
        look(&state, from: 600, to: 600.1, inFlight: 1, submitted: 1)
        #expect(state.state == .unanswered)
    }
}

@Suite("The memory of unanswered requests")
struct UnansweredRequestsTests {
    private func id(_ number: UInt64) -> APNSID { APNSID(high: 7, low: number) }

    @Test("includes the connection, and whether the request was refused or timed out")
    func past() {
        var requests = UnansweredRequests()
        #expect(requests.isEmpty)
        requests.insert(id(1), connection: 1, isRefusal: true)
        requests.insert(id(2), connection: 1, isRefusal: false)
        requests.insert(id(2), connection: 1, isRefusal: true)
        #expect(requests.past(of: id(1), on: 1) == .refused)
        #expect(requests.past(of: id(2), on: 1) == .timedOut)
        #expect(requests.past(of: id(2), on: 2) == .none)
        #expect(requests.past(of: id(3), on: 1) == .none)
    }

    @Test("is bounded, and drops the oldest first")
    func bounded() {
        var requests = UnansweredRequests()
        let capacity = UInt64(UnansweredRequests.capacity)
        for number in 0..<capacity + 10 { requests.insert(id(number), connection: Int(number % 2), isRefusal: false) }
        func isKnown(_ number: UInt64) -> Bool { requests.past(of: id(number), on: Int(number % 2)) == .timedOut }
        #expect(!(0..<10).contains(where: isKnown))
        #expect((10..<capacity + 10).allSatisfy(isKnown))
        requests.forget(connection: 0)
        #expect((10..<capacity + 10).allSatisfy { isKnown($0) == ($0 % 2 == 1) })
        // The oldest remaining entry is the next to be replaced.
        for number in 0..<capacity / 2 + 1 { requests.insert(id(1000 + number * 2), connection: 0, isRefusal: false) }
        #expect(!isKnown(11) && isKnown(13))
        requests.forget(connection: 0)
        requests.forget(connection: 1)
        #expect(requests.isEmpty)
    }
}
