import NIOConcurrencyHelpers

/// The provider token of one key in one process: all lanes send the same token, signed once and renewed in time.
///
/// A fleet can share one token. A worker whose token ``isDue(now:)`` makes a candidate with ``sign(now:)``, offers it
/// to the others, reads the agreed token with ``read(jwt:)``, and adopts it with ``adopt(_:now:)``. A worker that
/// cannot reach the others continues alone: ``token(now:)`` signs a token when one is due.
///
/// Safe to print: neither the description nor a mirror shows the key or a token.
public final class ProviderTokenSource: Sendable {
    public let keyID: String
    public let teamID: String

    private struct State {
        var schedule = ProviderTokenSchedule()
        var token: ProviderToken?
    }

    private let key: SigningKey
    private let state = NIOLockedValueBox(State())

    public struct InvalidIdentifier: Error, Sendable, CustomStringConvertible {
        public let description: String
    }

    /// - Throws: ``InvalidIdentifier`` if one of the identifiers is not letters and digits.
    public init(key: SigningKey, keyID: String, teamID: String) throws(InvalidIdentifier) {
        for (name, value) in [("key", keyID), ("team", teamID)] {
            let isPlain = value.utf8.allSatisfy { $0 &- 0x30 < 10 || ($0 | 0x20) &- 0x61 < 26 }
            guard !value.isEmpty, isPlain else {
                throw InvalidIdentifier(
                    description: "the \(name) ID must be Apple's ten letters and digits, such as ABC123DEFG")
            }
        }
        self.key = key
        self.keyID = keyID
        self.teamID = teamID
    }

    /// Returns the token to send now. Signs a new one if it is due.
    /// - Parameter now: seconds since 1970.
    public func token(now: Int64) throws(SigningKey.Invalid) -> ProviderToken {
        let result: Result<ProviderToken, SigningKey.Invalid> = state.withLockedValue { state in
            if let token = state.token, !state.schedule.isDue(now: now) { return .success(token) }
            do throws(SigningKey.Invalid) {
                let token = try ProviderToken(key: key, keyID: keyID, teamID: teamID, issuedAt: now)
                state.token = token
                state.schedule.signed(at: now)
                return .success(token)
            } catch {
                return .failure(error)
            }
        }
        return try result.get()
    }

    /// Returns true if the next ``token(now:)`` would sign a new one.
    /// - Parameter now: seconds since 1970.
    public func isDue(now: Int64) -> Bool {
        state.withLockedValue { $0.schedule.isDue(now: now) }
    }

    /// Signs a token without adopting it.
    /// - Parameter now: seconds since 1970.
    public func sign(now: Int64) throws(SigningKey.Invalid) -> ProviderToken {
        try ProviderToken(key: key, keyID: keyID, teamID: teamID, issuedAt: now)
    }

    /// Reads another worker's token, without adopting it.
    /// - Throws: ``ProviderToken/Untrusted`` unless this key signed it for this team.
    public func read(jwt: some Collection<UInt8>) throws(ProviderToken.Untrusted) -> ProviderToken {
        try ProviderToken(jwt: jwt, key: key, keyID: keyID, teamID: teamID)
    }

    /// Adopts a token made by ``sign(now:)`` or ``read(jwt:)``, on this or another source of the same key.
    /// - Parameter now: seconds since 1970.
    /// - Returns: true if ``token(now:)`` returns it from now on; see ``ProviderTokenSchedule/adopt(issuedAt:now:)``
    ///   for the conditions. Always false for a token with the identifiers of another key or team.
    public func adopt(_ token: ProviderToken, now: Int64) -> Bool {
        guard token.keyID == keyID, token.teamID == teamID else { return false }
        return state.withLockedValue { state in
            guard state.schedule.adopt(issuedAt: token.issuedAt, now: now) else { return false }
            state.token = token
            return true
        }
    }

    /// Records that APNs answered `ExpiredProviderToken`.
    /// - Parameters:
    ///   - issuedAt: when the refused token was signed, in seconds since 1970.
    ///   - now: seconds since 1970.
    /// - Returns: true if a resend with a new token can help.
    public func refused(issuedAt: Int64, now: Int64) -> Bool {
        state.withLockedValue { $0.schedule.refused(now: now, issuedAt: issuedAt) }
    }
}

extension ProviderTokenSource: CustomStringConvertible, CustomReflectable {
    public var description: String { "provider tokens (key \(keyID), team \(teamID))" }

    public var customMirror: Mirror { Mirror(self, children: ["keyID": keyID, "teamID": teamID]) }
}
