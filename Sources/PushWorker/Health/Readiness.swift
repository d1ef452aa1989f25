import NIOCore

/// When to tell that a lane cannot do its work, and that it can again, without any I/O.
///
/// What lasts for less than a moment, such as a reconnection, is not told: whoever reads the log could do nothing about it.
struct Readiness {
    enum Change: Equatable {
        case lost
        /// - Parameter after: how long it lasted.
        case regained(after: TimeAmount)
    }

    /// What is shorter is not told.
    static let patience = TimeAmount.seconds(1)

    private var troubledSince: NIODeadline?
    private var isTold = false

    /// Whether the lane could not do its work when it was looked at last: then its recovery is to be seen soon.
    var isTroubled: Bool { troubledSince != nil }

    /// - Parameter isReady: whether the lane can do its work now.
    /// - Returns: what is to be told, if anything.
    mutating func update(isReady: Bool, now: NIODeadline) -> Change? {
        guard !isReady else {
            defer { (troubledSince, isTold) = (nil, false) }
            return isTold ? troubledSince.map { .regained(after: now - $0) } : nil
        }
        let since = troubledSince ?? now
        troubledSince = since
        guard !isTold, now - since >= Self.patience else { return nil }
        isTold = true
        return .lost
    }
}
