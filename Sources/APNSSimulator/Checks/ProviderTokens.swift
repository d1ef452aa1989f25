import APNS

/// A provider token signed by a known key. Its age is not checked yet.
struct ProviderGrant: Equatable, Sendable {
    /// Seconds since 1970.
    var issuedAt: Int64
    var keyID: String
    var teamID: String
    var scope: ProviderKey.Scope
}

/// Verifies provider tokens, each distinct one once.
struct ProviderTokens: Sendable {
    /// The verdict on a token, regardless of its age and its connection.
    enum Standing: Equatable, Sendable {
        case genuine(ProviderGrant)
        case refused(Refusal)
    }

    private static let cacheLimit = 10_000

    private let keys: [String: ProviderKey]
    private var standings: [[UInt8]: Standing] = [:]

    /// - Parameter keys: the keys that can sign tokens; if there are none, signatures are not verified.
    init(keys: [ProviderKey]) {
        self.keys = Dictionary(keys.map { ($0.keyID, $0) }) { _, last in last }
    }

    /// Judges the value of an `authorization` header.
    /// - Parameter environment: the simulator's.
    mutating func standing(authorization: [UInt8], environment: APNSEnvironment) -> Standing {
        let known = standings[authorization] ?? judge(authorization)
        if standings.count >= Self.cacheLimit { standings.removeAll(keepingCapacity: true) }
        standings[authorization] = known
        if case .genuine(let grant) = known, let own = grant.scope.environment, own != environment {
            return .refused(.badEnvironmentKeyInToken)
        }
        return known
    }

    private func judge(_ authorization: [UInt8]) -> Standing {
        let scheme = Array("bearer ".utf8)
        guard authorization.count > scheme.count, authorization.prefix(scheme.count).map({ $0 | 0x20 }) == scheme
        else { return .refused(Refusal(.missingProviderToken)) }
        guard let token = ProviderToken(compact: Array(authorization.dropFirst(scheme.count))) else {
            return .refused(Refusal(.invalidProviderToken))
        }
        var scope = ProviderKey.Scope()
        if !keys.isEmpty {
            guard let key = keys[token.keyID], key.teamID == token.teamID, key.verifies(token) else {
                return .refused(Refusal(.invalidProviderToken))
            }
            scope = key.scope
        }
        return .genuine(
            ProviderGrant(issuedAt: token.issuedAt, keyID: token.keyID, teamID: token.teamID, scope: scope))
    }
}
