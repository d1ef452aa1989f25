import FoundationEssentials

/// A signed provider token: the JWT that goes into `authorization`.
///
/// It can be printed: neither the description nor a mirror shows the JWT.
///
/// Source: Apple, "Establishing a token-based connection to APNs".
public struct ProviderToken: Sendable, Equatable {
    /// The JWT. A secret: never to be logged.
    public let jwt: String
    /// When it was signed, in seconds since 1970.
    public let issuedAt: Int64
    /// The key's identifier at Apple.
    public let keyID: String
    /// The team's identifier at Apple.
    public let teamID: String

    /// Signs a token.
    /// - Parameters:
    ///   - keyID: the key's ten-character identifier.
    ///   - teamID: the developer team's ten-character identifier.
    ///   - issuedAt: seconds since 1970.
    public init(key: SigningKey, keyID: String, teamID: String, issuedAt: Int64) throws(SigningKey.Invalid) {
        let header = Self.base64URL(#"{"alg":"ES256","kid":"\#(keyID)"}"#.utf8)
        let claims = Self.base64URL(#"{"iss":"\#(teamID)","iat":\#(issuedAt)}"#.utf8)
        let signed = "\(header).\(claims)"
        let signature = Self.base64URL(try key.signES256(Array(signed.utf8)))
        jwt = "\(signed).\(signature)"
        self.issuedAt = issuedAt
        self.keyID = keyID
        self.teamID = teamID
    }

    private static func base64URL(_ bytes: some Sequence<UInt8>) -> String {
        Data(bytes).base64EncodedString()
            .replacing("+", with: "-").replacing("/", with: "_").replacing("=", with: "")
    }

    /// The largest token that is looked at, in bytes; one of ours has about 200.
    public static let maximumSize = 2048

    /// Why a token that came from elsewhere is not taken.
    public enum Untrusted: Error, Equatable, Sendable, CustomStringConvertible {
        /// Empty, too long, or not three parts of base64url with a signature of 64 bytes at the end.
        case notToken
        /// Not signed with this key, or changed since.
        case wrongSignature
        /// Another algorithm or another key's identifier in the header.
        case wrongHeader
        /// Another team, or no time that is a whole number of seconds.
        case wrongClaims

        /// The problem; nothing of the token.
        public var description: String {
            switch self {
            case .notToken: "not a provider token"
            case .wrongSignature: "a provider token that was not signed with this key"
            case .wrongHeader: "a provider token with another key's identifier or algorithm"
            case .wrongClaims: "a provider token of another team, or without the time it was signed"
            }
        }
    }

    private struct Header: Decodable {
        let alg: String
        let kid: String
    }

    private struct Claims: Decodable {
        let iss: String
        let iat: Int64
    }

    /// Takes a token that came from elsewhere, such as Redis, if this key signed it for this team.
    ///
    /// Nothing of it is believed, or even parsed, before the signature is verified. Its age is for
    /// ``ProviderTokenSource/adopt(_:now:)`` to judge.
    public init(jwt: some Collection<UInt8>, key: SigningKey, keyID: String, teamID: String) throws(Untrusted) {
        guard jwt.count <= Self.maximumSize else { throw .notToken }
        let bytes = Array(jwt)
        let parts = bytes.split(separator: UInt8(ascii: "."), omittingEmptySubsequences: false)
        guard parts.count == 3, let header = Base64.decodeURL(parts[0]), let claims = Base64.decodeURL(parts[1]),
            let signature = Base64.decodeURL(parts[2]), signature.count == 64
        else { throw .notToken }
        let signed = Array(bytes[..<(parts[2].startIndex - 1)])
        guard key.verifies(signature, of: signed) else { throw .wrongSignature }
        let decoder = JSONDecoder()
        // Which part of the JSON is wrong does not matter.
        guard let header = try? decoder.decode(Header.self, from: Data(header)), header.alg == "ES256",
            header.kid == keyID
        else { throw .wrongHeader }
        guard let claims = try? decoder.decode(Claims.self, from: Data(claims)), claims.iss == teamID
        else { throw .wrongClaims }
        // Only ASCII came through the decoder.
        self.jwt = String(decoding: bytes, as: UTF8.self)
        issuedAt = claims.iat
        self.keyID = keyID
        self.teamID = teamID
    }

    /// Takes a token that came from elsewhere as text.
    public init(jwt: String, key: SigningKey, keyID: String, teamID: String) throws(Untrusted) {
        try self.init(jwt: jwt.utf8, key: key, keyID: keyID, teamID: teamID)
    }
}

extension ProviderToken: CustomStringConvertible, CustomReflectable {
    /// Whose token it is and how old; nothing of the JWT.
    public var description: String { "provider token (key \(keyID), team \(teamID), issued at \(issuedAt))" }

    /// The same, for `dump` and debuggers.
    public var customMirror: Mirror {
        Mirror(self, children: ["keyID": keyID, "teamID": teamID, "issuedAt": issuedAt])
    }
}
