import NIOCore
import Testing

@testable import PushWorker

@Suite("Sharing a provider token")
struct TokenSharingTests {
    let start = NIODeadline.uptimeNanoseconds(1_000_000_000_000)

    @Test("a worker without a token asks at once, once, and waits for a moment before it signs its own")
    func first() {
        var sharing = TokenSharing(jitter: 100)
        #expect(sharing.isAwaited(now: start))
        #expect(sharing.shouldAsk(age: nil, isReady: false, now: start) == false)
        #expect(sharing.shouldAsk(age: nil, isReady: true, now: start + .seconds(1)) == true)
        #expect(sharing.shouldAsk(age: nil, isReady: true, now: start + .seconds(1)) == false)
        #expect(sharing.isAwaited(now: start + .milliseconds(1900)))
        #expect(sharing.isAwaited(now: start + TokenSharing.patience))
        #expect(!sharing.isAwaited(now: start + .seconds(1) + TokenSharing.patience))
        sharing.recordAgreement()
        #expect(sharing.shouldAsk(age: 0, isReady: true, now: start + .seconds(4)) == false)
    }

    @Test("asks again when the token gets old, each worker at a different time")
    func renewal() {
        for jitter in [0, 100, 300] as [Int64] {
            var sharing = TokenSharing(jitter: jitter)
            #expect(sharing.shouldAsk(age: 2399 + jitter, isReady: true, now: start) == false)
            #expect(sharing.shouldAsk(age: 2400 + jitter, isReady: true, now: start) == true)
        }
    }

    @Test("a worker that cannot ask signs its own at once, and asks again later")
    func withoutRedis() {
        var sharing = TokenSharing(jitter: 0)
        #expect(sharing.shouldAsk(age: nil, isReady: true, now: start) == true)
        sharing.recordFailure(now: start)
        #expect(!sharing.isAwaited(now: start))
        #expect(sharing.shouldAsk(age: nil, isReady: true, now: start + .seconds(1)) == false)
        #expect(sharing.shouldAsk(age: 30, isReady: true, now: start + TokenSharing.pause) == true)
        sharing.recordAgreement()
        #expect(sharing.shouldAsk(age: 60, isReady: true, now: start + .minutes(1)) == false)
    }

    @Test("a token that APNs has refused is reported until there is another, for which the lane waits")
    func refused() {
        var sharing = TokenSharing(jitter: 0)
        _ = sharing.shouldAsk(age: nil, isReady: true, now: start)
        sharing.recordAgreement()
        sharing.recordRefusal(issuedAt: 77)
        #expect(sharing.refusedAt == 77)
        #expect(sharing.shouldAsk(age: nil, isReady: true, now: start + .hours(1)) == true)
        #expect(sharing.isAwaited(now: start + .hours(1)))
        sharing.recordAgreement()
        #expect(sharing.refusedAt == 0)
    }
}
