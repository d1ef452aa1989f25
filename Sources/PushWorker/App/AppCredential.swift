import APNS
import NIOCore

/// The credential of one app on one lane: its signing keys, the key in use, and the provider token sent with requests.
struct AppCredential {
    private var sources: [ProviderTokenSource]
    /// The index of the key in use.
    private(set) var keyIndex = 0
    private var refusedKeys: Set<Int> = []
    var sharing: TokenSharing
    private(set) var providerToken: ProviderToken?
    /// The end of the certificate's validity, in seconds since 1970; `nil` for an app with keys.
    private(set) var certificateEnd: Int64?
    /// The certificate's name for operators; `nil` for an app with keys.
    private let certificateName: String?
    private let jitter: Int64

    /// - Parameter jitter: seconds added to a provider token's age of renewal. It differs by worker, so that only one worker of a fleet
    ///   renews it.
    init(_ credential: Credential, jitter: Int64) {
        self.jitter = jitter
        sources = credential.tokenSources
        certificateEnd = credential.certificateEnd
        if case .certificate(let certificate) = credential {
            let topics = certificate.apns.topics.map(\.name).prefix(1).joined()
            certificateName = "certificate \(topics) until \(certificate.notAfter ?? 0)"
        } else {
            certificateName = nil
        }
        sharing = TokenSharing(jitter: jitter)
    }

    /// True if requests can be signed or need no signature.
    var canSend: Bool { sources.isEmpty || providerToken != nil }

    /// The signing key in use; `nil` for a certificate.
    var source: ProviderTokenSource? { sources.isEmpty ? nil : sources[keyIndex] }

    /// The names of its keys or its certificate, for operators.
    var names: [String] { sources.isEmpty ? certificateName.map { [$0] } ?? [] : sources.map { "key \($0.keyID)" } }

    var keyIDs: [String] { sources.map(\.keyID) }

    var hasSeveralKeys: Bool { sources.count > 1 }

    /// The time of the signature of the provider token in use, in seconds since 1970; 0 without one.
    var providerTokenIssuedAt: Int64 { providerToken?.issuedAt ?? 0 }

    /// The age of the provider token in use, in seconds.
    func providerTokenAge(now: Int64) -> Int64? { providerToken.map { now - $0.issuedAt } }

    /// Adopts a new provider token if there is one.
    /// - Parameters:
    ///   - now: seconds since 1970.
    ///   - isAwaited: true if the fleet will probably provide a token, so that none is signed here.
    /// - Returns: the token for future requests, if it is another one than before.
    mutating func refresh(now: Int64, isAwaited: Bool) throws(SigningKey.Invalid) -> String? {
        guard let source else { return nil }
        if isAwaited, source.isDue(now: now) { return nil }
        let current = try source.token(now: now)
        guard current != providerToken else { return nil }
        providerToken = current
        return current.jwt
    }

    /// Records that APNs reported a provider token as expired. Nothing is sent until there is another token.
    /// - Parameter issuedAt: the time of the refused token's signature, in seconds since 1970.
    /// - Returns: true if another token may be accepted.
    mutating func renew(issuedAt: Int64, now: Int64) -> Bool {
        guard let source, source.refused(issuedAt: issuedAt, now: now) else { return false }
        if providerTokenIssuedAt == issuedAt {
            sharing.recordRefusal(issuedAt: issuedAt)
            providerToken = nil
        }
        return true
    }

    /// True if a refused request could be sent again with another key.
    /// - Parameter key: the key of the request.
    func hasKey(otherThan key: UInt8) -> Bool {
        guard hasSeveralKeys else { return false }
        // The request may have been sent before the key was changed.
        return Int(key) != keyIndex || nextKey != nil
    }

    /// Switches to the next key that APNs has not refused.
    /// - Returns: false if APNs has refused all others.
    mutating func useNextKey() -> Bool {
        guard let next = nextKey else { return false }
        refusedKeys.insert(keyIndex)
        use(key: next)
        return true
    }

    private var nextKey: Int? { sources.indices.first { $0 != keyIndex && !refusedKeys.contains($0) } }

    private mutating func use(key index: Int) {
        keyIndex = index
        providerToken = nil
        sharing = TokenSharing(jitter: jitter)
    }
}
