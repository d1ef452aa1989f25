import NIOCore

/// When a lane asks the fleet for the provider token of a key, and how long it waits before it signs its own, without any
/// I/O.
struct TokenSharing {
    /// How long sending waits for the fleet's token, when there is none to send with.
    static let patience = TimeAmount.seconds(2)
    /// How long to leave Redis alone that could not be asked, or that has another time than this machine.
    static let pause = TimeAmount.seconds(30)
    /// The age in seconds from which a token is to be replaced, before the jitter.
    let renewalAge: Int64
    /// Of the fleet's workers, one renews; the others ask a little later and find its token.
    let jitter: Int64

    private var isAsking = false
    private var wantedSince: NIODeadline?
    private var notBefore = NIODeadline.distantPast
    /// When the token was signed that APNs has called expired.
    private(set) var refusedAt: Int64 = 0

    /// - Parameters:
    ///   - renewalAge: in seconds.
    ///   - jitter: in seconds, at random up to some minutes.
    init(renewalAge: Int64, jitter: Int64) {
        self.renewalAge = renewalAge
        self.jitter = jitter
    }

    /// Returns true if it is time to ask.
    /// - Parameters:
    ///   - age: of the token in use, in seconds; `nil` without one.
    ///   - isReady: whether Redis can be asked.
    mutating func shouldAsk(age: Int64?, isReady: @autoclosure () -> Bool, now: NIODeadline) -> Bool {
        let isNeeded = age.map { $0 >= renewalAge + jitter } ?? true
        guard isNeeded || refusedAt > 0 else {
            wantedSince = nil
            return false
        }
        wantedSince = wantedSince ?? now
        guard !isAsking, now >= notBefore, isReady() else { return false }
        isAsking = true
        // A connection may have come late: the answer still has its time.
        wantedSince = now
        return true
    }

    /// Returns true if the fleet's token may still come, so that the worker must not sign its own yet.
    func isAwaited(now: NIODeadline) -> Bool {
        guard let wantedSince else { return true }
        return now >= notBefore && now - wantedSince < Self.patience
    }

    /// The fleet has a token, which is in use now.
    mutating func agreed() {
        isAsking = false
        wantedSince = nil
        refusedAt = 0
    }

    /// The fleet could not be asked, or what it has is of no use.
    mutating func failed(now: NIODeadline) {
        isAsking = false
        notBefore = now + Self.pause
    }

    /// APNs has called the token in use expired.
    mutating func refused(issuedAt: Int64) {
        refusedAt = issuedAt
        wantedSince = nil
    }
}
