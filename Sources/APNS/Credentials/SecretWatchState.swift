/// When a credential's secrets count as changed, without any I/O.
///
/// Whoever replaces files does so one after the other, and not all at once: contents count only when two looks in a row
/// find the same.
struct SecretWatchState: Sendable {
    /// A digest for each source.
    typealias Digests = [[UInt8]]

    /// The result of a look.
    enum Verdict: Equatable {
        case unchanged
        /// To be built, and then accepted or rejected.
        case changed
        /// Not readable, which has not been reported yet.
        case unreadable
    }

    private var inUse: Digests
    private var rejected: Digests?
    private var lastSeen: Digests?
    private var reported: SecretSource.Unreadable?

    init(inUse: Digests) {
        self.inUse = inUse
    }

    /// All sources were read.
    mutating func saw(_ digests: Digests) -> Verdict {
        reported = nil
        defer { lastSeen = digests }
        if digests == inUse { rejected = nil }
        guard digests != inUse, digests != rejected else { return .unchanged }
        return digests == lastSeen ? .changed : .unchanged
    }

    /// One of the sources could not be read.
    mutating func failed(_ error: SecretSource.Unreadable) -> Verdict {
        lastSeen = nil
        guard error != reported else { return .unchanged }
        reported = error
        return .unreadable
    }

    /// Adopts the contents that were seen last: they are in use from now on.
    mutating func accept() {
        inUse = lastSeen ?? inUse
        rejected = nil
    }

    /// Rejects the contents that were seen last: until they change they are not looked at again.
    mutating func reject() {
        rejected = lastSeen
    }
}
