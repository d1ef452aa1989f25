import FoundationEssentials
import TLS

/// A signed provider token: the JWT in the `authorization` header.
///
/// Safe to print: neither the description nor a mirror shows the JWT.
///
/// Source: Apple, "Establishing a token-based connection to APNs".
public struct ProviderToken: Sendable, Equatable {
    /// The JWT. A secret: never log it.
    public let jwt: String
    /// The time of signing, in seconds since 1970.
    public let issuedAt: Int64
    public let keyID: String
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

    /// The maximum size in bytes of a token that is read; tokens made here have about 200.
    public static let maximumSize = 2048

    public enum Untrusted: Error, Equatable, Sendable, CustomStringConvertible {
        /// The text is empty or too long, or is not three parts in base64url that end with a signature of 64 bytes.
        case notToken
        /// The token was not signed with this key, or was modified after signing.
        case wrongSignature
        /// The header names another algorithm or another key.
        case wrongHeader
        /// The claims name another team, or have no time that is a whole number of seconds.
        case wrongClaims

        /// The problem, without any part of the token.
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

    /// Reads a token from elsewhere, such as Redis, if this key signed it for this team.
    ///
    /// Nothing in it is trusted, or even parsed as JSON, before the signature is verified. Its age is judged by
    /// ``ProviderTokenSource/adopt(_:now:)``.
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
        // The decoder's error is dropped: it does not matter which part of the JSON is wrong.
        guard let header = try? decoder.decode(Header.self, from: Data(header)), header.alg == "ES256",
            header.kid == keyID
        else { throw .wrongHeader }
        guard let claims = try? decoder.decode(Claims.self, from: Data(claims)), claims.iss == teamID
        else { throw .wrongClaims }
        // All bytes are ASCII: the base64 decoder accepts nothing else.
        self.jwt = String(decoding: bytes, as: UTF8.self)
        issuedAt = claims.iat
        self.keyID = keyID
        self.teamID = teamID
    }
}

extension ProviderToken: CustomStringConvertible, CustomReflectable {
    /// The key, the team and the time of signing; no part of the JWT.
    public var description: String { "provider token (key \(keyID), team \(teamID), issued at \(issuedAt))" }

    public var customMirror: Mirror {
        Mirror(self, children: ["keyID": keyID, "teamID": teamID, "issuedAt": issuedAt])
    }
}
