import COpenSSL

/// Detects that a credential's secrets were replaced, so that it can be rebuilt while the old one stays in use.
///
/// It keeps digests (SHA-256), never the secrets themselves. Poll it every few seconds. Contents count as changed when two reads in a row
/// find the same contents, so a file that is still being written is ignored.
public struct SecretWatch: Sendable {
    public enum Renewal<Credential> {
        /// Nothing changed, or the problem was reported before.
        case unchanged
        /// A credential built from the new contents, to use from now on.
        case renewed(Credential)
        /// The old credential stays in use, because a source is not readable (``SecretSource/Unreadable``) or the new
        /// contents cannot be used. Reported once per problem.
        case failed(any Error)
    }

    /// One digest per source.
    private typealias Digests = [[UInt8]]

    /// The watched sources, in the order of their contents.
    public let sources: [SecretSource]
    private var inUse: Digests
    /// The contents that could not be used. They are ignored until they change.
    private var rejected: Digests?
    /// The contents at the last reading; `nil` if a source could not be read.
    private var lastSeen: Digests?
    private var reported: SecretSource.Unreadable?

    /// - Parameters:
    ///   - sources: the key or certificate and, if they are separate secrets, its key and its passphrase.
    ///   - contents: their contents when the current credential was built, in the same order.
    public init(_ sources: [SecretSource], inUse contents: [[UInt8]]) {
        self.sources = sources
        inUse = contents.map(Self.digest)
    }

    /// True if a source can change; only files can.
    public var canChange: Bool {
        sources.contains { if case .file = $0 { true } else { false } }
    }

    /// True if the last reading found the contents that are in use.
    public var isInUse: Bool { lastSeen == inUse }

    /// Reads the sources, and rebuilds the credential if they have changed.
    /// - Parameter build: makes the credential from the contents, in the order of ``sources``.
    public mutating func renew<Credential>(_ build: ([[UInt8]]) throws -> Credential) -> Renewal<Credential> {
        let contents: [[UInt8]]
        do throws(SecretSource.Unreadable) {
            contents = try sources.map { (source) throws(SecretSource.Unreadable) in try source.read() }
        } catch {
            lastSeen = nil
            guard error != reported else { return .unchanged }
            reported = error
            return .failed(error)
        }
        reported = nil
        let seen = contents.map(Self.digest)
        defer { lastSeen = seen }
        if seen == inUse { rejected = nil }
        guard seen != inUse, seen != rejected, seen == lastSeen else { return .unchanged }
        do {
            let credential = try build(contents)
            (inUse, rejected) = (seen, nil)
            return .renewed(credential)
        } catch {
            rejected = seen
            return .failed(error)
        }
    }

    private static func digest(_ bytes: [UInt8]) -> [UInt8] {
        var digest = [UInt8](repeating: 0, count: Int(SHA256_DIGEST_LENGTH))
        SHA256(bytes, bytes.count, &digest)
        return digest
    }
}

extension SecretWatch.Renewal: Sendable where Credential: Sendable {}

extension SecretWatch: CustomStringConvertible, CustomReflectable {
    /// The watched sources. Digests are not shown, because a digest could reveal a short passphrase.
    public var description: String { "watch over \(sources.map(\.description).joined(separator: ", "))" }

    public var customMirror: Mirror { Mirror(self, children: ["sources": sources]) }
}
