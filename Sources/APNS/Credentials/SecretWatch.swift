import COpenSSL

/// Notices that the secrets of a credential were replaced, so that it can be built anew while the old one goes on
/// working.
///
/// It keeps digests (SHA-256), never the secrets themselves. Ask every few seconds: contents count as changed when two
/// looks in a row find the same, so that a file that is being written is let alone.
public struct SecretWatch: Sendable {
    /// The result of looking for a changed credential.
    public enum Renewal<Credential> {
        /// Nothing to do: nothing changed, or what is wrong was told before.
        case unchanged
        /// Built from the new contents, and to be used from now on.
        case renewed(Credential)
        /// The old one is kept, for this reason: a source is not readable (``SecretSource/Unreadable``), or nothing can
        /// be built from it. Told once for each problem.
        case failed(any Error)
    }

    /// The watched sources, in the order in which contents are given.
    public let sources: [SecretSource]
    private var state: SecretWatchState

    /// - Parameters:
    ///   - sources: the key or certificate and, if they are secrets of their own, its key and its passphrase.
    ///   - contents: what they held when the credential in use was built, in the same order.
    public init(_ sources: [SecretSource], inUse contents: [[UInt8]]) {
        self.sources = sources
        state = SecretWatchState(inUse: contents.map(Self.digest))
    }

    /// True if there is anything that can change: only files do.
    public var canChange: Bool {
        sources.contains { if case .file = $0 { true } else { false } }
    }

    /// Reads the sources, and builds the credential anew where they have changed.
    /// - Parameter build: makes the credential of the contents, in the order of ``sources``.
    public mutating func renew<Credential>(_ build: ([[UInt8]]) throws -> Credential) -> Renewal<Credential> {
        var contents: [[UInt8]] = []
        for source in sources {
            do throws(SecretSource.Unreadable) {
                contents.append(try source.read())
            } catch {
                return state.failed(error) == .unreadable ? .failed(error) : .unchanged
            }
        }
        guard state.saw(contents.map(Self.digest)) == .changed else { return .unchanged }
        do {
            let credential = try build(contents)
            state.accept()
            return .renewed(credential)
        } catch {
            state.reject()
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
    /// The watched sources; a digest could reveal a short passphrase.
    public var description: String { "watch over \(sources.map(\.description).joined(separator: ", "))" }

    /// The same, for `dump` and debuggers.
    public var customMirror: Mirror { Mirror(self, children: ["sources": sources]) }
}
