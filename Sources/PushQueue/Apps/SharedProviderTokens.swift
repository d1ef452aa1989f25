import NIOCore
import Redis

/// The provider tokens that all workers with the same key share.
///
/// Tokens are not examined here: the reader must verify them, because any client may have written there.
///
/// Not thread-safe; everything is called, and calls back, on the client's event loop.
public final class SharedProviderTokens {
    /// A token that a worker would share.
    public struct Offer: Sendable {
        /// The key's identifier.
        public var keyID: String
        /// The team's identifier.
        public var teamID: String
        /// When it was signed, in seconds since 1970.
        public var issuedAt: Int64
        /// The token.
        public var token: String
        /// When the token was signed that APNs has called expired, in seconds since 1970; 0 for none.
        public var refusedAt: Int64

        /// Makes an offer; see the members for units.
        public init(keyID: String, teamID: String, issuedAt: Int64, token: String, refusedAt: Int64 = 0) {
            self.keyID = keyID
            self.teamID = teamID
            self.issuedAt = issuedAt
            self.token = token
            self.refusedAt = refusedAt
        }
    }

    /// The result of an offer.
    public enum Answer: Sendable, Equatable {
        /// All use it from now on.
        case taken
        /// There is a token already, signed by another worker.
        case other(ByteBuffer)
        /// This machine's clock and Redis' are too far apart, by so many seconds.
        case clocksDiffer(seconds: Int64)
    }

    /// The age in seconds from which a token is replaced.
    public static let renewalAge: Int64 = 40 * 60
    /// How long APNs takes a token, in seconds.
    private static let life = 60 * 60
    /// How far clocks may be apart, in seconds.
    private static let tolerance = 120

    private let keys: SharedKeys
    private let client: any RedisSender
    private let scripts: ScriptRunner

    /// - Parameter client: of the slot of the shared keys.
    public convenience init(client: any RedisSender, keys: SharedKeys) {
        self.init(client: client, keys: keys, clock: .server)
    }

    package init(client: any RedisSender, keys: SharedKeys, clock: ClockSource) {
        self.keys = keys
        self.client = client
        scripts = ScriptRunner(client: client, clock: clock)
    }

    /// True while Redis can be asked.
    public var isReady: Bool { client.isReady }

    /// Offers a token, which is taken where there is none, or an old one.
    public func share(_ offer: Offer, completion: @escaping (Result<Answer, QueueConnection.Failure>) -> Void) {
        scripts.run(
            .shareProviderToken, [keys.providerToken(team: offer.teamID, key: offer.keyID)],
            arguments: { command in
                command.append(Int(offer.issuedAt))
                command.append(offer.token)
                command.append(Int(Self.renewalAge))
                command.append(Int(offer.refusedAt))
                command.append(Self.life)
                command.append(Self.tolerance)
            },
            completion: { result in
                completion(
                    result.flatMap { reply in
                        guard reply.root.count == 3, let token = reply.root[1].bytes, let now = reply.root[2].integer
                        else { return .failure(.unexpectedReply(.shareProviderToken)) }
                        switch reply.root[0].integer {
                        case 1: return .success(.taken)
                        case 0: return .success(.other(token))
                        case -1: return .success(.clocksDiffer(seconds: offer.issuedAt - Int64(now)))
                        default: return .failure(.unexpectedReply(.shareProviderToken))
                        }
                    })
            })
    }
}
