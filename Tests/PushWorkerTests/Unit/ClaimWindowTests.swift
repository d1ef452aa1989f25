import NIOCore
import TestSupport
import Testing

@testable import PushWorker

@Suite("A claim window")
struct ClaimWindowTests {
    let start = NIODeadline.uptimeNanoseconds(1_000_000_000)

    @Test("never asks for more than is free, nor for more than a batch")
    func bounds() {
        var window = ClaimWindow()
        #expect(window.next(free: 7, busy: 0, now: start) == .init(first: 1, count: 7, join: true))
        _ = window.recordAnswer(received: 7, isPaused: false, nextDue: 0, now: start)
        #expect(window.next(free: 5000, busy: 0, now: start)?.count == ClaimWindow.maximumCount)
    }

    @Test("claims nothing while a claim is in flight or no capacity is left")
    func oneAtATime() {
        var window = ClaimWindow()
        #expect(window.next(free: 0, busy: 0, now: start) == nil)
        #expect(window.next(free: 10, busy: 0, now: start) != nil)
        #expect(window.next(free: 10, busy: 0, now: start) == nil)
        #expect(window.renewal(now: start) == nil)
    }

    @Test("waits, while busy, until a third of the streams are free")
    func batches() {
        var window = ClaimWindow()
        #expect(window.next(free: 100, busy: 400, now: start) == nil)
        #expect(window.next(free: 170, busy: 330, now: start)?.count == 170)
    }

    @Test("numbers its claims one after the other")
    func numbers() {
        var window = ClaimWindow()
        #expect(window.next(free: 10, busy: 0, now: start)?.first == 1)
        #expect(window.recordAnswer(received: 10, isPaused: false, nextDue: 0, now: start) == true)
        #expect(window.next(free: 10, busy: 0, now: start) == .init(first: 11, count: 10, join: false))
    }

    @Test("asks for less when the answer to the same claim is lost again, and then for the rest")
    func lostAnswers() {
        var window = ClaimWindow()
        #expect(window.next(free: 100, busy: 0, now: start)?.count == 100)
        window.recordFailure(mayHaveRun: true, now: start)
        #expect(window.next(free: 100, busy: 0, now: start) == .init(first: 1, count: 100, join: true))
        #expect(window.lost == nil)
        for (count, times) in [(25, 2), (6, 3)] {
            window.recordFailure(mayHaveRun: true, now: start)
            #expect(window.lost?.claim.count == count && window.lost?.times == times)
            #expect(window.next(free: 1, busy: 99, now: start)?.count == count)
        }
        var asked: [Int] = []
        for first in stride(from: 1, through: 97, by: 6) {
            let count = min(6, 101 - first)
            asked.append(count)
            _ = window.recordAnswer(received: count, isPaused: false, nextDue: 0, now: start)
            #expect(window.isInDoubt == (first + count <= 100))
            guard window.isInDoubt else { continue }
            #expect(window.next(free: 0, busy: 0, now: start)?.first == first + count)
        }
        #expect(asked.reduce(0, +) == 100)
        // For some time.
        #expect(window.next(free: 500, busy: 0, now: start) == .init(first: 101, count: 6, join: false))
        _ = window.recordAnswer(received: 6, isPaused: false, nextDue: 0, now: start)
        #expect(window.next(free: 500, busy: 0, now: start + .minutes(11))?.count == ClaimWindow.maximumCount)
    }

    @Test("continues normally when less of a claim in doubt is there than was asked for")
    func nothingClaimed() {
        var window = ClaimWindow()
        for _ in 0..<3 {
            #expect(window.next(free: 100, busy: 0, now: start)?.first == 1)
            window.recordFailure(mayHaveRun: true, now: start)
        }
        #expect(window.next(free: 100, busy: 0, now: start)?.count == 6)
        _ = window.recordAnswer(received: 2, isPaused: false, nextDue: nil, now: start)
        #expect(!window.isInDoubt && window.lost == nil)
        window.wake()
        #expect(window.next(free: 100, busy: 0, now: start)?.first == 3)
    }

    @Test("does not ask Redis for a while after an empty answer, and asks at once when it is woken")
    func idle() {
        var window = ClaimWindow()
        _ = window.next(free: 10, busy: 0, now: start)
        #expect(window.recordAnswer(received: 3, isPaused: false, nextDue: nil, now: start) == false)
        #expect(window.next(free: 10, busy: 0, now: start) == nil)
        #expect(window.next(free: 10, busy: 0, now: start + ClaimWindow.idlePoll) != nil)
        _ = window.recordAnswer(received: 0, isPaused: false, nextDue: nil, now: start)
        window.wake()
        #expect(window.next(free: 10, busy: 0, now: start) != nil)
    }

    @Test("lets other workers claim due retries first after a job was given back to them")
    func givesBack() {
        var window = ClaimWindow()
        window.recordReturn(now: start)
        for (time, delay) in [(start, ClaimWindow.givenBackDelay), (start + .seconds(30), .zero)] {
            window.wake()
            _ = window.next(free: 10, busy: 0, now: time)
            _ = window.recordAnswer(received: 1, isPaused: false, nextDue: 5, now: time)
            #expect(window.nextClaim == time + .milliseconds(5) + delay)
        }
    }

    @Test("checks a paused queue more often, so that it continues within a second")
    func paused() {
        var window = ClaimWindow()
        _ = window.next(free: 10, busy: 0, now: start)
        _ = window.recordAnswer(received: 0, isPaused: true, nextDue: 5, now: start)
        #expect(window.next(free: 10, busy: 0, now: start + .milliseconds(600)) == nil)
        #expect(window.next(free: 10, busy: 0, now: start + .milliseconds(800)) != nil)
    }

    @Test("reserves capacity for the jobs that a claim may return, unless its answer is slow")
    func reserved() {
        var window = ClaimWindow()
        #expect(window.reserved(now: start) == 0)
        _ = window.next(free: 10, busy: 0, now: start)
        #expect(window.reserved(now: start + .milliseconds(99)) == 10)
        #expect(window.reserved(now: start + .milliseconds(100)) == 0)
        _ = window.recordAnswer(received: 10, isPaused: false, nextDue: nil, now: start)
        #expect(window.reserved(now: start) == 0)
    }

    @Test("claims again when the next retry is due")
    func due() {
        var window = ClaimWindow()
        _ = window.next(free: 10, busy: 0, now: start)
        _ = window.recordAnswer(received: 0, isPaused: false, nextDue: 200, now: start)
        #expect(window.next(free: 10, busy: 0, now: start + .milliseconds(199)) == nil)
        #expect(window.next(free: 10, busy: 0, now: start + .milliseconds(200)) != nil)
    }

    @Test("polls more often if no blocking wait reports new jobs")
    func unwatched() {
        var window = ClaimWindow()
        _ = window.next(free: 10, busy: 0, now: start)
        _ = window.recordAnswer(received: 0, isPaused: false, nextDue: nil, isWatched: false, now: start)
        #expect(window.next(free: 10, busy: 0, now: start + .milliseconds(999)) == nil)
        #expect(window.next(free: 10, busy: 0, now: start + .seconds(1)) != nil)
    }

    @Test("a lane that does not poll claims when it is woken, and as long as jobs wait")
    func notPolling() {
        var window = ClaimWindow(polls: false)
        _ = window.next(free: 10, busy: 0, now: start)
        #expect(window.recordAnswer(received: 0, isPaused: false, nextDue: 5, now: start) == false)
        #expect(window.nextClaim == .distantFuture && !window.cannotPoll(now: start + .hours(1)))
        window.wake()
        #expect(window.next(free: 10, busy: 0, now: start) != nil)
        #expect(window.recordAnswer(received: 10, isPaused: false, nextDue: 0, now: start) == true)
        #expect(window.next(free: 10, busy: 0, now: start) != nil)
        _ = window.recordAnswer(received: 0, isPaused: false, nextDue: nil, now: start)
        // A renewal of the lease reports that jobs wait, in case the polling lane has not noticed.
        _ = window.renewal(now: start)
        _ = window.recordAnswer(received: 0, isPaused: false, nextDue: 0, now: start)
        #expect(window.next(free: 10, busy: 0, now: start) != nil)
    }

    @Test("the polling lane notices that it can't poll, so that others do")
    func cannotPoll() {
        var window = ClaimWindow()
        _ = window.next(free: 10, busy: 0, now: start)
        _ = window.recordAnswer(received: 10, isPaused: false, nextDue: 0, now: start)
        #expect(!window.cannotPoll(now: start + .milliseconds(999)))
        #expect(window.cannotPoll(now: start + .seconds(1)))
    }

    @Test("a claim that returns nothing although jobs wait is made again after a pause, with later numbers")
    func emptyHanded() {
        var window = ClaimWindow()
        _ = window.next(free: 10, busy: 0, now: start)
        #expect(window.recordAnswer(received: 0, isPaused: false, nextDue: 0, now: start) == true)
        #expect(window.next(free: 10, busy: 0, now: start) == nil)
        #expect(window.next(free: 10, busy: 0, now: start + .milliseconds(10))?.first == 11)
    }

    @Test("repeats a claim whose reply was lost with the same numbers, whatever the current capacity")
    func doubt() {
        var window = ClaimWindow()
        let claim = window.next(free: 10, busy: 0, now: start)
        window.recordFailure(mayHaveRun: true, now: start)
        // The lease must not expire while the claim cannot be repeated, and a renewal does not answer the claim.
        #expect(window.renewal(now: start)?.count == 0)
        _ = window.recordAnswer(received: 0, isPaused: false, nextDue: nil, now: start)
        #expect(window.isInDoubt)
        #expect(window.next(free: 0, busy: 10, now: start) == claim)
        _ = window.recordAnswer(received: 4, isPaused: false, nextDue: nil, now: start)
        window.wake()
        #expect(window.next(free: 10, busy: 0, now: start)?.first == 5)
    }

    @Test("repeats it until it is answered, also when it is refused or not sent in the meantime")
    func stillInDoubt() {
        var window = ClaimWindow()
        let claim = window.next(free: 10, busy: 0, now: start)
        window.recordFailure(mayHaveRun: true, now: start)
        #expect(window.next(free: 5, busy: 0, now: start) == claim)
        window.recordRefusal(now: start, pause: .seconds(1))
        #expect(window.next(free: 5, busy: 0, now: start) == claim)
        window.recordFailure(mayHaveRun: false, now: start)
        #expect(window.next(free: 5, busy: 0, now: start) == claim)
        #expect(!window.wasAnswered(1))
        _ = window.recordAnswer(received: 2, isPaused: false, nextDue: nil, now: start)
        #expect(window.wasAnswered(1) && window.wasAnswered(11))
        // A refused claim that was not in doubt was not executed.
        window.wake()
        #expect(window.next(free: 5, busy: 0, now: start)?.first == 3)
        #expect(window.wasAnswered(2) && !window.wasAnswered(3))
        window.recordRefusal(now: start, pause: .seconds(1))
        #expect(window.next(free: 7, busy: 0, now: start + .seconds(1)) == .init(first: 3, count: 7, join: false))
        // A claim that Redis listed uses up its number.
        window.recordRefusal(now: start, pause: .seconds(1))
        window.recordAdopted(9)
        #expect(window.next(free: 1, busy: 0, now: start + .seconds(2))?.first == 10)
    }

    @Test("does not repeat a claim that was never sent")
    func notSent() {
        var window = ClaimWindow()
        _ = window.next(free: 10, busy: 0, now: start)
        window.recordFailure(mayHaveRun: false, now: start)
        #expect(window.next(free: 3, busy: 0, now: start) == .init(first: 1, count: 3, join: true))
    }

    @Test("joins again under a new name, without the old claims in doubt")
    func afresh() {
        var window = ClaimWindow()
        _ = window.next(free: 10, busy: 0, now: start)
        _ = window.recordAnswer(received: 10, isPaused: false, nextDue: 0, now: start)
        _ = window.next(free: 10, busy: 0, now: start)
        window.recordFailure(mayHaveRun: true, now: start)
        window.recordLostLease()
        #expect(window.next(free: 2, busy: 0, now: start) == .init(first: 11, count: 2, join: true))
    }

    @Test("a slow answer is overdue, for a renewal as for a claim")
    func overdue() {
        var window = ClaimWindow()
        #expect(!window.isOverdue(now: start))
        _ = window.next(free: 10, busy: 0, now: start)
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
    func anyOrder(seed: UInt64) {
        var random = SeededGenerator(seed: seed)
        var window = ClaimWindow()
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

    /// Expects that jobs would be requested by then, given capacity.
    private func checkItContinues(_ window: ClaimWindow, now: NIODeadline) {
        var window = window
        #expect((window.next(free: 10, busy: 0, now: now)?.count ?? 0) > 0)
    }
}
