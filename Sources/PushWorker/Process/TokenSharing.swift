import NIOCore
import PushQueue

/// Decides when a lane asks the fleet for a key's provider token, and how long it waits before it signs one. No I/O.
struct TokenSharing {
    /// The maximum time for which a lane without a token waits for the fleet's token.
    static let patience = TimeAmount.seconds(2)
    /// The pause after Redis could not be asked or its clock differs from this machine's.
    static let pause = TimeAmount.seconds(30)
    /// Seconds added to the age of a token's renewal. They differ by worker, so that one worker of the fleet renews the token, and the
    /// others find it when they ask later.
    let jitter: Int64

    private var isAsking = false
    /// True if the fleet could not be asked. It is asked again soon, although the worker signs its own token, because only an answer shows
    /// that Redis no longer refuses.
    private var isOwed = false
    private var wantedSince: NIODeadline?
    private var notBefore = NIODeadline.distantPast
    /// The time of the signature of the token that APNs reported as expired; 0 if there is none.
    private(set) var refusedAt: Int64 = 0

    /// - Parameter jitter: in seconds; random, up to several minutes.
    init(jitter: Int64) { self.jitter = jitter }

    /// Returns true if it is time to ask.
    /// - Parameters:
    ///   - age: the age of the token in use, in seconds; `nil` without one.
    ///   - isReady: true if Redis can be asked.
    mutating func shouldAsk(age: Int64?, isReady: @autoclosure () -> Bool, now: NIODeadline) -> Bool {
        let isNeeded = isOwed || (age.map { $0 >= SharedProviderTokens.renewalAge + jitter } ?? true)
        guard isNeeded || refusedAt > 0 else {
            wantedSince = nil
            return false
        }
        wantedSince = wantedSince ?? now
        guard !isAsking, now >= notBefore, isReady() else { return false }
        isAsking = true
        // The time for the answer begins now, because the connection to Redis may have been late.
        wantedSince = now
        return true
    }

    /// True if the fleet's token may still arrive, so that this worker must not sign one.
    func isAwaited(now: NIODeadline) -> Bool {
        guard let wantedSince else { return true }
        return now >= notBefore && now - wantedSince < Self.patience
    }

    /// Records that the fleet has a token, which is now in use.
    mutating func recordAgreement() {
        isAsking = false
        isOwed = false
        wantedSince = nil
        refusedAt = 0
    }

    /// Records that the fleet could not be asked or that its token is unusable.
    mutating func recordFailure(now: NIODeadline) {
        isAsking = false
        isOwed = true
        notBefore = now + Self.pause
    }

    /// Records that APNs reported the token in use as expired.
    mutating func recordRefusal(issuedAt: Int64) {
        refusedAt = issuedAt
        wantedSince = nil
    }
}
