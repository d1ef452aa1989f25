import NIOCore
import TestSupport
import Testing

@testable import PushWorker

@Suite("A claim window")
struct ClaimWindowTests {
    private var window = ClaimWindow()
    let start = NIODeadline.uptimeNanoseconds(1_000_000_000)

    @discardableResult
    private mutating func next(_ free: Int = 10, busy: Int = 0, after time: TimeAmount = .zero) -> ClaimWindow.Claim? {
        window.next(free: free, busy: busy, now: start + time)
    }

    @discardableResult
    private mutating func answer(
        _ received: Int, isPaused: Bool = false, nextDue: Int64? = nil, isWatched: Bool = true
    ) -> Bool {
        window.recordAnswer(received: received, isPaused: isPaused, nextDue: nextDue, isWatched: isWatched, now: start)
    }

    @Test("claims what is free, once it is a third of the streams, at most a batch, and one claim at a time")
    mutating func bounds() {
        #expect(next(0) == nil)
        #expect(next(100, busy: 400) == nil)
        #expect(next(170, busy: 330) == .init(first: 1, count: 170, join: true))
        #expect(next() == nil)
        #expect(window.renewal(now: start) == nil)
        #expect(answer(170, nextDue: 0) == true)
        #expect(next(5000) == .init(first: 171, count: ClaimWindow.maximumCount, join: false))
    }

    @Test(
        "claims again after a pause that depends on the answer",
        arguments: [
            (3, false, nil, true, ClaimWindow.idlePoll), (0, false, nil, false, .seconds(1)),
            (0, true, 5, true, .milliseconds(700)), (0, false, 200, true, .milliseconds(200)),
            (0, false, 0, true, .milliseconds(10)),
        ] as [(Int, Bool, Int64?, Bool, TimeAmount)])
    mutating func pauses(received: Int, isPaused: Bool, nextDue: Int64?, isWatched: Bool, pause: TimeAmount) {
        next()
        #expect(answer(received, isPaused: isPaused, nextDue: nextDue, isWatched: isWatched) == (nextDue == 0))
        #expect(next(after: pause - .milliseconds(1)) == nil)
        // A claim that returned nothing although jobs wait is made again with later numbers.
        #expect(next(after: pause)?.first == (nextDue == 0 ? 11 : 1 + received))
    }

    @Test("asks for less when the answer to the same claim is lost again, and then for the rest")
    mutating func lostAnswers() {
        #expect(next(100)?.count == 100)
        window.recordFailure(mayHaveRun: true, now: start)
        #expect(next(100) == .init(first: 1, count: 100, join: true))
        #expect(window.lost == nil)
        for (count, times) in [(25, 2), (6, 3)] {
            window.recordFailure(mayHaveRun: true, now: start)
            #expect(window.lost?.claim.count == count && window.lost?.times == times)
            #expect(next(1, busy: 99)?.count == count)
        }
        var asked: [Int] = []
        for first in stride(from: 1, through: 97, by: 6) {
            let count = min(6, 101 - first)
            asked.append(count)
            answer(count, nextDue: 0)
            #expect(window.isInDoubt == (first + count <= 100))
            guard window.isInDoubt else { continue }
            #expect(next(0)?.first == first + count)
        }
        #expect(asked.reduce(0, +) == 100)
        // Claims stay small for ten minutes.
        #expect(next(500) == .init(first: 101, count: 6, join: false))
        answer(6, nextDue: 0)
        #expect(next(500, after: .minutes(11))?.count == ClaimWindow.maximumCount)
    }

    @Test("continues normally when less of a claim in doubt is there than was asked for")
    mutating func nothingClaimed() {
        for _ in 0..<3 {
            #expect(next(100)?.first == 1)
            window.recordFailure(mayHaveRun: true, now: start)
        }
        #expect(next(100)?.count == 6)
        answer(2)
        #expect(!window.isInDoubt && window.lost == nil)
        window.wake()
        #expect(next(100)?.first == 3)
    }

    @Test("lets other workers claim due retries first after a job was given back to them")
    mutating func givesBack() {
        window.recordReturn(now: start)
        for (time, delay) in [(start, ClaimWindow.givenBackDelay), (start + .seconds(30), .zero)] {
            window.wake()
            _ = window.next(free: 10, busy: 0, now: time)
            _ = window.recordAnswer(received: 1, isPaused: false, nextDue: 5, now: time)
            #expect(window.nextClaim == time + .milliseconds(5) + delay)
        }
    }

    @Test("reserves capacity for the jobs that a claim may return, unless its answer is slow")
    mutating func reserved() {
        #expect(window.reserved(now: start) == 0)
        next()
        #expect(window.reserved(now: start + .milliseconds(99)) == 10)
        #expect(window.reserved(now: start + .milliseconds(100)) == 0)
        answer(10)
        #expect(window.reserved(now: start) == 0)
    }

    @Test("a lane that does not poll claims when it is woken, and as long as jobs wait")
    mutating func notPolling() {
        window = ClaimWindow(polls: false)
        next()
        #expect(answer(0, nextDue: 5) == false)
        #expect(window.nextClaim == .distantFuture && !window.cannotPoll(now: start + .hours(1)))
        window.wake()
        #expect(next() != nil)
        #expect(answer(10, nextDue: 0) == true)
        #expect(next() != nil)
        answer(0)
        // A renewal of the lease reports that jobs wait, in case the polling lane has not noticed.
        _ = window.renewal(now: start)
        answer(0, nextDue: 0)
        #expect(next() != nil)
    }

    @Test("the polling lane notices that it can't poll, so that others do")
    mutating func cannotPoll() {
        next()
        answer(10, nextDue: 0)
        #expect(!window.cannotPoll(now: start + .milliseconds(999)))
        #expect(window.cannotPoll(now: start + .seconds(1)))
    }

    @Test("repeats a claim whose reply was lost with the same numbers, whatever the current capacity")
    mutating func doubt() {
        let claim = next()
        window.recordFailure(mayHaveRun: true, now: start)
        // The lease must not expire while the claim cannot be repeated, and a renewal does not answer the claim.
        #expect(window.renewal(now: start)?.count == 0)
        answer(0)
        #expect(window.isInDoubt)
        #expect(next(0, busy: 10) == claim)
        answer(4)
        window.wake()
        #expect(next()?.first == 5)
    }

    @Test("repeats it until it is answered, also when it is refused or not sent in the meantime")
    mutating func stillInDoubt() {
        let claim = next()
        window.recordFailure(mayHaveRun: true, now: start)
        #expect(next(5) == claim)
        window.recordRefusal(now: start, pause: .seconds(1))
        #expect(next(5) == claim)
        window.recordFailure(mayHaveRun: false, now: start)
        #expect(next(5) == claim)
        #expect(!window.wasAnswered(1))
        answer(2)
        #expect(window.wasAnswered(1) && window.wasAnswered(11))
        // A refused claim that was not in doubt was not executed.
        window.wake()
        #expect(next(5)?.first == 3)
        #expect(window.wasAnswered(2) && !window.wasAnswered(3))
        window.recordRefusal(now: start, pause: .seconds(1))
        #expect(next(7, after: .seconds(1)) == .init(first: 3, count: 7, join: false))
        // A claim that Redis listed uses up its number.
        window.recordRefusal(now: start, pause: .seconds(1))
        window.recordAdopted(9)
        #expect(next(1, after: .seconds(2))?.first == 10)
    }

    @Test("does not repeat a claim that was never sent")
    mutating func notSent() {
        next()
        window.recordFailure(mayHaveRun: false, now: start)
        #expect(next(3) == .init(first: 1, count: 3, join: true))
    }

    @Test("joins again under a new name, without the old claims in doubt")
    mutating func afresh() {
        next()
        answer(10, nextDue: 0)
        next()
        window.recordFailure(mayHaveRun: true, now: start)
        window.recordLostLease()
        #expect(next(2) == .init(first: 11, count: 2, join: true))
    }

    @Test("a slow answer is overdue, for a renewal as for a claim")
    mutating func overdue() {
        #expect(!window.isOverdue(now: start))
        next()
        #expect(!window.isOverdue(now: start + .milliseconds(999)))
        #expect(window.isOverdue(now: start + .seconds(1)))
        _ = window.recordAnswer(received: 10, isPaused: false, nextDue: nil, now: start + .seconds(1))
        #expect(!window.isOverdue(now: start + .seconds(9)))
        _ = window.renewal(now: start + .seconds(9))
        #expect(window.isOverdue(now: start + .seconds(10)))
    }

    @Test(
        "never repeats a number, never has two claims in flight and never starves, in any order of events",
        arguments: 0..<300)
    mutating func anyOrder(seed: UInt64) {
        var random = SeededGenerator(seed: seed)
        var now = start
        var inFlight: ClaimWindow.Claim?
        var answeredTo = 0
        let longestRefusal = TimeAmount.milliseconds(1500)
        for _ in 0..<500 {
            now = now + .milliseconds(Int64.random(in: 0...400, using: &random))
            switch Int.random(in: 0..<8, using: &random) {
            case 0, 1:
                let free = Int.random(in: 0...600, using: &random)
                let claim =
                    Bool.random(using: &random)
                    ? window.next(free: free, busy: Int.random(in: 0...600, using: &random), now: now)
                    : window.renewal(now: now)
                guard let claim else { continue }
                #expect(inFlight == nil)
                #expect(claim.count <= ClaimWindow.maximumCount)
                #expect(claim.first > answeredTo)
                inFlight = claim
            case 2, 3:
                guard let claim = inFlight else { continue }
                let received = Int.random(in: 0...claim.count, using: &random)
                _ = window.recordAnswer(
                    received: received, isPaused: Bool.random(using: &random),
                    nextDue: Bool.random(using: &random) ? Int64.random(in: 0...3000, using: &random) : nil, now: now)
                answeredTo = max(answeredTo, claim.first + received - 1)
                inFlight = nil
                // The answer to a renewal does not end the pause after a refused claim.
                checkItContinues(window, now: now + max(ClaimWindow.idlePoll, longestRefusal))
            case 4:
                guard inFlight != nil else { continue }
                window.recordFailure(mayHaveRun: Bool.random(using: &random), now: now)
                inFlight = nil
                checkItContinues(window, now: now)
            case 5:
                guard inFlight != nil else { continue }
                let pause = TimeAmount.nanoseconds(
                    Int64.random(in: 500_000_000...longestRefusal.nanoseconds, using: &random))
                window.recordRefusal(now: now, pause: pause)
                inFlight = nil
                checkItContinues(window, now: now + pause)
            case 6:
                guard Int.random(in: 0..<10, using: &random) == 0 else { continue }
                window.recordLostLease()
                inFlight = nil
                #expect(!window.hasJoined)
                checkItContinues(window, now: now)
            default:
                window.wake()
                if inFlight == nil { checkItContinues(window, now: now) }
            }
            #expect(window.isAsking == (inFlight != nil))
            #expect(inFlight != nil || window.reserved(now: now) == 0)
        }
    }

    /// Expects that the window asks for jobs at this time, given capacity.
    private func checkItContinues(_ window: ClaimWindow, now: NIODeadline) {
        var window = window
        #expect((window.next(free: 10, busy: 0, now: now)?.count ?? 0) > 0)
    }
}
