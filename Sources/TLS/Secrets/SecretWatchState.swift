/// Decides when a credential's secrets count as changed, without any I/O.
///
/// Files are replaced one after the other, and not atomically: contents count only when two reads in a row find the
/// same.
struct SecretWatchState: Sendable {
    /// One digest per source.
    typealias Digests = [[UInt8]]

    /// The result of a read.
    enum Verdict: Equatable {
        case unchanged
        /// There are new contents: build a credential, then call ``accept()`` or ``reject()``.
        case changed
        /// A source is not readable, and this has not been reported yet.
        case unreadable
    }

    private var inUse: Digests
    private var rejected: Digests?
    private var lastSeen: Digests?
    private var reported: SecretSource.Unreadable?

    init(inUse: Digests) {
        self.inUse = inUse
    }

    /// Records the digests of all sources.
    mutating func saw(_ digests: Digests) -> Verdict {
        reported = nil
        defer { lastSeen = digests }
        if digests == inUse { rejected = nil }
        guard digests != inUse, digests != rejected else { return .unchanged }
        return digests == lastSeen ? .changed : .unchanged
    }

    /// Records that a source could not be read.
    mutating func failed(_ error: SecretSource.Unreadable) -> Verdict {
        lastSeen = nil
        guard error != reported else { return .unchanged }
        reported = error
        return .unreadable
    }

    /// True if the sources were last found as they are in use.
    var isInUse: Bool { lastSeen == inUse && reported == nil }

    /// Accepts the contents that were seen last: they are in use from now on.
    mutating func accept() {
        inUse = lastSeen ?? inUse
        rejected = nil
    }

    /// Rejects the contents that were seen last: they are ignored until they change.
    mutating func reject() {
        rejected = lastSeen
    }
}
