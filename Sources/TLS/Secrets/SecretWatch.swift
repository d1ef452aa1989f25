import COpenSSL

/// Detects that a credential's secrets were replaced, so that it can be rebuilt while the old one stays in use.
///
/// It keeps digests (SHA-256), never the secrets themselves. Poll it every few seconds: contents count as changed when
/// two reads in a row find the same, so that a file that is still being written is ignored.
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

    /// The watched sources, in the order of their contents.
    public let sources: [SecretSource]
    private var state: SecretWatchState

    /// - Parameters:
    ///   - sources: the key or certificate and, if they are separate secrets, its key and its passphrase.
    ///   - contents: their contents when the current credential was built, in the same order.
    public init(_ sources: [SecretSource], inUse contents: [[UInt8]]) {
        self.sources = sources
        state = SecretWatchState(inUse: contents.map(Self.digest))
    }

    /// True if a source can change; only files can.
    public var canChange: Bool {
        sources.contains { if case .file = $0 { true } else { false } }
    }

    /// True if the sources were last found as they are in use.
    public var isInUse: Bool { state.isInUse }

    /// Reads the sources, and rebuilds the credential if they have changed.
    /// - Parameter build: makes the credential from the contents, in the order of ``sources``.
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
    /// The watched sources. No digests: one could reveal a short passphrase.
    public var description: String { "watch over \(sources.map(\.description).joined(separator: ", "))" }

    public var customMirror: Mirror { Mirror(self, children: ["sources": sources]) }
}
