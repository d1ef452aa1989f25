import NIOCore
import Testing

@testable import PushQueue
@testable import PushWorker

@Suite("The lease of a lane")
struct LeaseTests {
    let start = NIODeadline.uptimeNanoseconds(100_000_000_000)

    @Test("a lane may reclaim once its lease was renewed without a gap for 15 s")
    func steady() {
        var lease = Lease(QueueLimits())
        #expect(!lease.isSteady(now: start))
        for second in stride(from: 0, through: 15, by: 5) {
            renew(&lease, Int64(second))
            #expect(lease.isSteady(now: start + .seconds(Int64(second))) == (second == 15))
        }
        // Redis became unreachable.
        #expect(!lease.isSteady(now: start + .seconds(26)))
        renew(&lease, 40)
        #expect(!lease.isSteady(now: start + .seconds(41)))
        renew(&lease, 48)
        renew(&lease, 55)
        #expect(lease.isSteady(now: start + .seconds(55)))
        lease.recordLoss()
        #expect(!lease.isSteady(now: start + .seconds(55)))
    }

    @Test("the gap is half of a short lease")
    func shortLease() {
        var limits = QueueLimits()
        limits.lease = 8000
        var lease = Lease(limits)
        for second in stride(from: 0, through: 16, by: 4) { renew(&lease, Int64(second)) }
        #expect(lease.isSteady(now: start + .seconds(20)))
        #expect(!lease.isSteady(now: start + .seconds(21)))
    }

    @Test("an expired lane is reclaimed after a delay, once, and only by a lane whose own lease is steady")
    func expired() {
        var lease = Lease(QueueLimits())
        func mayReclaim(_ other: String, after delay: Int64 = 0, at milliseconds: Int64) -> Bool {
            lease.recordExpired(other, delay: .milliseconds(delay), now: start + .milliseconds(milliseconds))
        }
        renew(&lease, 0)
        #expect(!mayReclaim("a", at: 0))
        renew(&lease, 8)
        renew(&lease, 15)
        // An expired lease that was found before this lane's lease was steady does not count.
        #expect(lease.reclaimTime(of: "a") == nil)
        #expect(!mayReclaim("a", after: 500, at: 15_000))
        #expect(!mayReclaim("b", after: 900, at: 15_000))
        // The lane looks again at this time.
        #expect(lease.reclaimTime(of: "a") == start + .milliseconds(15_500))
        #expect(!mayReclaim("a", at: 15_499))
        #expect(mayReclaim("a", at: 15_500))
        #expect(!mayReclaim("a", after: 500, at: 15_500))
        #expect(mayReclaim("b", at: 15_900))
    }

    @Test("the lease is the long one while the lane holds no claims and asks for none")
    func idle() {
        var lease = Lease(QueueLimits())
        #expect(!lease.holdsNothing && !lease.isIdle)
        lease.recordRenewal(count: 10, held: 0, now: start)
        #expect(lease.holdsNothing && !lease.isIdle)
        lease.recordRenewal(count: 0, held: 0, now: start)
        #expect(lease.isIdle)
        lease.recordRequest(count: 0, now: start + .seconds(1))
        #expect(lease.isIdle && lease.requestedAt == start + .seconds(1))
        lease.recordRequest(count: 1, now: start)
        #expect(!lease.isIdle)
        lease.recordRenewal(count: 0, held: 3, now: start)
        #expect(!lease.holdsNothing && !lease.isIdle)
        // -1 means that the number of claims is unknown.
        lease.recordRenewal(count: 0, held: -1, now: start)
        #expect(!lease.holdsNothing)
    }

    @Test("a lane renews its lease often while it polls or has jobs, and seldom while it has neither")
    func due() {
        var lease = Lease(QueueLimits())
        #expect(lease.isDue(polls: false, isQuiet: false, hasJobs: false, isAtRest: false, now: start))
        /// Returns the seconds after which a renewal is due.
        func interval(polls: Bool = false, isQuiet: Bool = false, hasJobs: Bool = false, isAtRest: Bool = false)
            -> Double
        {
            lease.recordRequest(count: 0, now: start)
            let milliseconds = stride(from: Int64(0), to: 1_000_000, by: 500).first { time in
                let now = start + .milliseconds(time) + .nanoseconds(1)
                return lease.isDue(polls: polls, isQuiet: isQuiet, hasJobs: hasJobs, isAtRest: isAtRest, now: now)
            }
            return Double(milliseconds ?? -1) / 1000
        }
        #expect(interval() == 10)
        #expect(interval(isAtRest: true) == 10, "the last claim may have been answered with jobs")
        #expect(interval(polls: true) == 10)
        #expect(interval(polls: true, isQuiet: true) == Double(WorkerReport.interval) / 1000)
        #expect(interval(hasJobs: true) == 0.5 && interval(polls: true, hasJobs: true) == 0.5)
        lease.recordRenewal(count: 0, held: 0, now: start)
        #expect(interval(isAtRest: true) == 300 && interval() == 10 && interval(polls: true, isAtRest: true) <= 10)
    }

    private func renew(_ lease: inout Lease, _ second: Int64) {
        lease.recordRenewal(count: 1, held: 1, now: start + .seconds(second))
    }
}

@Suite("Forgotten claims")
struct ForgottenClaimsTests {
    @Test("claims that the lane does not know are read in the order of their numbers, more at a time as they are small")
    func unknown() {
        let listed = (1...30).reversed().map { ClaimID(number: $0, stamp: "s") }
        var forgotten = ForgottenClaims(listed: listed) { known in
            for number in 21...40 { known(ClaimID(number: number, stamp: "s")) }
            // The same number under another stamp is another job's claim.
            known(ClaimID(number: 1, stamp: "t"))
        }
        #expect(forgotten.count == 20 && forgotten.largestNumber == 20)
        #expect(forgotten.next(capacity: 2).map(\.number) == [1, 2])
        #expect(forgotten.next(capacity: 100).map(\.number) == [1, 2, 3, 4])
        forgotten.recordRead(4, bytes: 400)
        #expect(forgotten.next(capacity: 100).map(\.number) == Array(5...12))
        forgotten.recordRead(8, bytes: 8 << 20)
        #expect(forgotten.next(capacity: 100).map(\.number) == [13])
        forgotten.recordRead(8, bytes: 800)
        #expect(forgotten.isEmpty && forgotten.next(capacity: 100).isEmpty)
    }

    @Test("a claim that an answer in flight can still return is not forgotten")
    func inFlight() {
        let start = NIODeadline.uptimeNanoseconds(1_000_000_000)
        var window = ClaimWindow()
        _ = window.next(free: 5, busy: 0, now: start)
        _ = window.recordAnswer(received: 5, isPaused: false, nextDue: 0, now: start)
        _ = window.next(free: 5, busy: 0, now: start)
        let listed = (1...10).map { ClaimID(number: $0, stamp: "s") }
        #expect(ForgottenClaims(listed: listed, window: window).largestNumber == 5)
        #expect(ForgottenClaims().isEmpty && ForgottenClaims().largestNumber == 0)
    }
}
