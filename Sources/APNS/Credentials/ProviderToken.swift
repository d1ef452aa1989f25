import FoundationEssentials

/// A signed provider token: the JWT that goes into `authorization`.
///
/// Source: Apple, "Establishing a token-based connection to APNs".
public struct ProviderToken: Sendable, Equatable {
    /// The JWT. A secret: never to be logged.
    public let jwt: String
    /// When it was signed, in seconds since 1970.
    public let issuedAt: Int64

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
    }

    private static func base64URL(_ bytes: some Sequence<UInt8>) -> String {
        Data(bytes).base64EncodedString()
            .replacing("+", with: "-").replacing("/", with: "_").replacing("=", with: "")
    }
}

/// When a provider token is signed anew, without any I/O.
///
/// APNs refuses tokens older than an hour, and refuses a key whose tokens change more often than every 20 minutes.
public struct ProviderTokenSchedule: Sendable {
    /// The age in seconds at which a token is replaced.
    public static let renewalAge: Int64 = 50 * 60
    /// Below this age in seconds APNs would take a further token as one too many.
    public static let minimumAge: Int64 = 20 * 60

    private var issuedAt: Int64?
    private var isRefused = false

    /// A schedule that has signed nothing yet.
    public init() {}

    /// Whether to sign now.
    /// - Parameter now: seconds since 1970.
    public func isDue(now: Int64) -> Bool {
        guard let issuedAt else { return true }
        // A clock that was set back makes a token look as if it came from the future, which APNs refuses.
        return isRefused || now - issuedAt >= Self.renewalAge || now < issuedAt - 60
    }

    /// A token was signed.
    public mutating func signed(at now: Int64) {
        issuedAt = now
        isRefused = false
    }

    /// APNs called the token expired (`ExpiredProviderToken`).
    /// - Returns: whether a new one may help: not when the refused one was signed just now, which means that this
    ///   machine's clock is wrong.
    public mutating func refused(now: Int64, issuedAt refused: Int64) -> Bool {
        guard refused == issuedAt else { return true }
        guard now - refused >= 60 else { return false }
        isRefused = true
        return true
    }
}
