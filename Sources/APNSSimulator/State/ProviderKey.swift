import APNS
import COpenSSL
import FoundationEssentials
import TLS

/// A key that can sign provider tokens, and its owner.
///
/// Unchecked because of the pointer. Safe because the key is only used to verify, which OpenSSL allows from many threads at once.
package final class ProviderKey: @unchecked Sendable {
    /// `kid`: ten characters.
    package let keyID: String
    /// `iss`: ten characters.
    package let teamID: String
    let scope: Scope
    private let key: OpaquePointer

    /// Source: Apple, "Establishing a token-based connection to APNs", "Team-scoped keys" and "Topic-specific keys".
    package struct Scope: Equatable, Sendable {
        /// The bundle identifiers of a topic-specific key; nil for a team-scoped one.
        package var topics: Set<String>?
        /// The environment of the key; nil for both, as for keys older than scopes.
        package var environment: APNSEnvironment?
        /// The key whose tokens a connection accepts together with the tokens of this topic-specific key.
        package var relatedKeyID: String?

        /// A team-scoped key for both environments.
        package init() {}

        /// Reads `topics=com.example.app+com.example.other,environment=sandbox,related=KEYID`; each part is optional.
        /// - Throws: ``RuleError`` that names the invalid part.
        package init(_ text: String) throws(RuleError) {
            var reader = try RuleReader(text, kind: "scope of a provider key")
            topics = try reader.take("topics", "must be bundle identifiers with + between them") { text in
                text.isEmpty ? nil : Set(RuleReader.list(text))
            }
            environment = try reader.take("environment", "must be production or sandbox") {
                APNSEnvironment(rawValue: $0)
            }
            relatedKeyID = reader.take("related")
            try reader.finish()
        }
    }

    /// Reads a public key, or a private one as Apple issues it (`AuthKey_….p8`), in PEM.
    /// - Throws: ``SimulatorError`` if the text is neither key, or if the key is not on the curve P-256.
    package init(keyID: String, teamID: String, pem: [UInt8], scope: Scope = Scope()) throws(SimulatorError) {
        guard let key = Self.read(pem) else {
            throw SimulatorError("provider key \(keyID) must be a public or private key in PEM without a passphrase")
        }
        guard EVP_PKEY_get_base_id(key) == EVP_PKEY_EC, EVP_PKEY_get_bits(key) == 256 else {
            EVP_PKEY_free(key)
            throw SimulatorError("provider key \(keyID) must be an EC key on the curve P-256 (prime256v1)")
        }
        self.keyID = keyID
        self.teamID = teamID
        self.scope = scope
        self.key = key
    }

    deinit { EVP_PKEY_free(key) }

    private static func read(_ pem: [UInt8]) -> OpaquePointer? {
        guard let bio = BIO_new_mem_buf(pem, Int32(pem.count)) else { return nil }
        defer {
            BIO_free(bio)
            ERR_clear_error()
        }
        // Without a callback, OpenSSL would ask for a passphrase on the terminal. This callback makes an encrypted key fail.
        if let key = PEM_read_bio_PUBKEY(bio, nil, { _, _, _, _ in -1 }, nil) { return key }
        BIO_ctrl(bio, BIO_CTRL_RESET, 0, nil)
        return PEM_read_bio_PrivateKey(bio, nil, { _, _, _, _ in -1 }, nil)
    }

    func verifies(_ signature: [UInt8], of message: [UInt8]) -> Bool {
        ES256.verifies(signature, of: message, key: key)
    }
}

/// A provider token signed by a known key. Its age is not checked yet.
struct ProviderGrant: Equatable, Sendable {
    /// Seconds since 1970.
    var issuedAt: Int64
    var keyID: String
    var teamID: String
    var scope = ProviderKey.Scope()
}

/// Verifies provider tokens (JWTs). The result for each token is cached.
///
/// Source: Apple, "Establishing a token-based connection to APNs": header `alg` ES256 and `kid`, claims `iss` (the team)
/// and `iat` (seconds since 1970), signed with ECDSA over P-256 and SHA-256.
struct ProviderTokens: Sendable {
    private struct Header: Decodable {
        let alg: String
        let kid: String
    }

    private struct Claims: Decodable {
        let iss: String
        let iat: Double
    }

    private static let cacheLimit = 10_000

    private let keys: [String: ProviderKey]
    private var grants: [[UInt8]: Result<ProviderGrant, Refusal>] = [:]

    /// - Parameter keys: the keys that can sign tokens. Without any, signatures are not verified.
    init(keys: [ProviderKey]) {
        self.keys = Dictionary(keys.map { ($0.keyID, $0) }) { _, last in last }
    }

    /// Judges the value of an `authorization` header, except for the token's age and its connection.
    mutating func grant(authorization: [UInt8], environment: APNSEnvironment) -> Result<ProviderGrant, Refusal> {
        let known = grants[authorization] ?? Result { () throws(Refusal) in try verify(authorization) }
        if grants.count >= Self.cacheLimit { grants.removeAll(keepingCapacity: true) }
        grants[authorization] = known
        if case .success(let grant) = known, let own = grant.scope.environment, own != environment {
            return .failure(.badEnvironmentKeyInToken)
        }
        return known
    }

    private func verify(_ authorization: [UInt8]) throws(Refusal) -> ProviderGrant {
        let scheme = Array("bearer ".utf8)
        guard authorization.count > scheme.count, authorization.prefix(scheme.count).map({ $0 | 0x20 }) == scheme
        else { throw Refusal(.missingProviderToken) }
        let parts = authorization.dropFirst(scheme.count).split(separator: 0x2E, omittingEmptySubsequences: false)
        guard parts.count == 3, let header = Self.json(Header.self, parts[0]), header.alg == "ES256",
            !header.kid.isEmpty, let claims = Self.json(Claims.self, parts[1]), !claims.iss.isEmpty, claims.iat >= 0,
            claims.iat < 1e12, let signature = Base64.decodeURL(parts[2]), signature.count == 64
        else { throw Refusal(.invalidProviderToken) }
        var grant = ProviderGrant(issuedAt: Int64(claims.iat), keyID: header.kid, teamID: claims.iss)
        guard !keys.isEmpty else { return grant }
        let signed = Array(authorization[scheme.count..<parts[1].endIndex])
        guard let key = keys[header.kid], key.teamID == claims.iss, key.verifies(signature, of: signed) else {
            throw Refusal(.invalidProviderToken)
        }
        grant.scope = key.scope
        return grant
    }

    // The kind of error does not matter, because APNs answers InvalidProviderToken to all of them.
    private static func json<Value: Decodable>(_ type: Value.Type, _ text: ArraySlice<UInt8>) -> Value? {
        Base64.decodeURL(text).flatMap { try? JSONDecoder().decode(type, from: Data($0)) }
    }
}

/// A failure of the simulator itself, such as an unreadable key: the problem, its place, and the remedy.
package struct SimulatorError: Error, Equatable, Sendable, CustomStringConvertible {
    package let description: String

    init(_ description: String) { self.description = description }

    init(openSSL what: String) {
        var text = [CChar](repeating: 0, count: 256)
        ERR_error_string_n(ERR_get_error(), &text, text.count)
        ERR_clear_error()
        let reason = String(decoding: text.prefix { $0 != 0 }.map(UInt8.init(bitPattern:)), as: UTF8.self)
        self.init("OpenSSL could not \(what): \(reason)")
    }
}
