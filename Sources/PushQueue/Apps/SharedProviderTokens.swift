import NIOCore
import Redis

/// The provider tokens that all workers with the same key share.
///
/// Tokens are not verified here. The caller must verify them, because any client of Redis may have written them.
///
/// Not thread-safe. Use it only on the client's event loop; completions are called there, too.
public final class SharedProviderTokens {
    /// A token that a worker offers to share.
    public struct Offer: Sendable {
        public var keyID: String
        public var teamID: String
        /// The time of its signature, in seconds since 1970.
        public var issuedAt: Int64
        public var token: String
        /// The time of signature of the token that APNs refused as expired, in seconds since 1970; 0 for none.
        public var refusedAt: Int64

        public init(keyID: String, teamID: String, issuedAt: Int64, token: String, refusedAt: Int64 = 0) {
            self.keyID = keyID
            self.teamID = teamID
            self.issuedAt = issuedAt
            self.token = token
            self.refusedAt = refusedAt
        }
    }

    public enum Answer: Sendable, Equatable {
        /// The token was stored: all workers use it from now on.
        case taken
        /// The token of another worker is in use.
        case other(ByteBuffer)
        /// The clocks of this machine and of Redis differ too much. The number is negative if this machine's clock is behind.
        case clocksDiffer(seconds: Int64)
    }

    /// The age in seconds at which a token is replaced.
    public static let renewalAge: Int64 = 40 * 60
    /// The time in seconds for which APNs accepts a token.
    private static let life = 60 * 60
    /// The maximum difference between the clocks, in seconds.
    private static let tolerance = 120

    private let keys: SharedKeys
    private let client: any RedisSender
    private let scripts: ScriptRunner

    /// - Parameter client: a client for the slot of the shared keys.
    public init(client: any RedisSender, keys: SharedKeys, clock: ClockSource = .server) {
        self.keys = keys
        self.client = client
        scripts = ScriptRunner(client: client, clock: clock)
    }

    /// True while Redis is connected.
    public var isReady: Bool { client.isReady }

    /// Offers a token. It is stored if Redis has no token, only an old token, or the token that APNs refused.
    public func share(_ offer: Offer, completion: @escaping Completion<Answer>) {
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
            completion: completion
        ) { reply in
            let (result, token, now) = (reply.number(), reply.bytes(), reply.number())
            switch result {
            case 1: return .taken
            case 0: return .other(token)
            case -1: return .clocksDiffer(seconds: offer.issuedAt - Int64(now))
            default:
                reply.refuse()
                return .taken
            }
        }
    }
}
