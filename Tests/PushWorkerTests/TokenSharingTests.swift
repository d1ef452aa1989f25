import NIOCore
import Testing

@testable import PushWorker

@Suite("Sharing a provider token")
struct TokenSharingTests {
    let start = NIODeadline.uptimeNanoseconds(1_000_000_000_000)

    @Test("a worker without a token asks at once, once, and waits for a moment before it signs its own")
    func first() {
        var sharing = TokenSharing(renewalAge: 2400, jitter: 100)
        check(sharing.isAwaited(now: start))
        check(!sharing.shouldAsk(age: nil, isReady: false, now: start))
        check(sharing.shouldAsk(age: nil, isReady: true, now: start + .seconds(1)))
        check(!sharing.shouldAsk(age: nil, isReady: true, now: start + .seconds(1)))
        check(sharing.isAwaited(now: start + .milliseconds(1900)))
        check(sharing.isAwaited(now: start + TokenSharing.patience))
        check(!sharing.isAwaited(now: start + .seconds(1) + TokenSharing.patience))
        sharing.agreed()
        check(!sharing.shouldAsk(age: 0, isReady: true, now: start + .seconds(4)))
    }

    @Test("asks again when the token gets old, each worker at a time of its own")
    func renewal() {
        for jitter in [0, 100, 300] as [Int64] {
            var sharing = TokenSharing(renewalAge: 2400, jitter: jitter)
            check(!sharing.shouldAsk(age: 2399 + jitter, isReady: true, now: start))
            check(sharing.shouldAsk(age: 2400 + jitter, isReady: true, now: start))
        }
    }

    @Test("a worker that cannot ask signs its own at once, and asks again later")
    func withoutRedis() {
        var sharing = TokenSharing(renewalAge: 2400, jitter: 0)
        check(sharing.shouldAsk(age: nil, isReady: true, now: start))
        sharing.failed(now: start)
        check(!sharing.isAwaited(now: start))
        check(!sharing.shouldAsk(age: nil, isReady: true, now: start + .seconds(1)))
        check(sharing.shouldAsk(age: 2400, isReady: true, now: start + TokenSharing.pause))
    }

    @Test("a token that APNs has refused is named until there is another, and that is waited for")
    func refused() {
        var sharing = TokenSharing(renewalAge: 2400, jitter: 0)
        _ = sharing.shouldAsk(age: nil, isReady: true, now: start)
        sharing.agreed()
        sharing.refused(issuedAt: 77)
        check(sharing.refusedAt == 77)
        check(sharing.shouldAsk(age: nil, isReady: true, now: start + .hours(1)))
        check(sharing.isAwaited(now: start + .hours(1)))
        sharing.agreed()
        check(sharing.refusedAt == 0)
    }
}
