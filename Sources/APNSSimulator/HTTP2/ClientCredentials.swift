import APNS
import Glibc
import PushJob
import TLS

struct ClientCertificate: Sendable {
    /// The bundle identifier that the certificate is for.
    let topic: String
    /// The topics of the certificate's list. nil without a list: the certificate is then valid for all topics of its app.
    let listedTopics: Set<String>?
    private let environments: Set<APNSEnvironment>

    /// - Returns: nil for a certificate that names no topic.
    init?(_ certificate: TLSPeerCertificate?) {
        guard let certificate, let topic = certificate.userID else { return nil }
        self.topic = topic
        let contents = APNSCertificate(certificate)
        listedTopics = contents.listsTopics ? Set(contents.topics.map(\.name)) : nil
        environments = contents.environments
    }

    /// Returns true if the certificate names the environment, or no environment.
    ///
    /// Source: Apple Worldwide Developer Relations, Certification Practice Statement: one extension per environment.
    func isFor(_ environment: APNSEnvironment) -> Bool { environments.isEmpty || environments.contains(environment) }
}

/// The facts about one value of `apns-topic` on one connection.
struct TopicFacts: Sendable, Equatable {
    let name: String
    /// True if the topic consists of letters, digits, dots, hyphens and underscores, and is not empty.
    var isWellFormed: Bool
    /// True if the topic is in the simulator's list, or if there is no list.
    var isListed: Bool
    /// True if the client's certificate is for the topic; false without a certificate.
    var isOfCertificate: Bool
    /// The topic, and the bundle identifier that it is derived from.
    private var names: [String]

    init(topic: String, listed: Set<String>, certificate: ClientCertificate?) {
        isWellFormed = !topic.isEmpty && topic.utf8.allSatisfy(\.isOfName)
        name = topic
        // An app can push to its bundle identifier and to all topics derived from it.
        let bundle = PushType.parts(ofTopic: topic).bundle
        let names = bundle == topic ? [topic] : [topic, bundle]
        isListed = listed.isEmpty || names.contains(where: listed.contains)
        isOfCertificate =
            certificate.map { $0.listedTopics?.contains(topic) ?? names.contains($0.topic) } ?? false
        self.names = names
    }

    /// Returns true if a provider token's key is for this topic, or for the app that it is derived from.
    func isFor(_ grant: ProviderGrant) -> Bool {
        grant.scope.topics.map { topics in names.contains { topics.contains($0) } } ?? true
    }

    var isOfWallet: Bool { name.hasPrefix("pass.") || name.hasPrefix("order.") }
}

extension UInt8 {
    /// True for letters, digits, hyphens, dots and underscores.
    var isOfName: Bool {
        switch self {
        case 0x30...0x39, 0x41...0x5A, 0x61...0x7A, 0x2D, 0x2E, 0x5F: true
        default: false
        }
    }
}

/// The rights of a client on its connection: those of its certificate or its provider tokens.
///
/// Source for provider tokens: Apple, "Establishing a token-based connection to APNs". A connection accepts the tokens of one team, signed
/// with team-scoped keys, or with a topic-specific key and its related key. The reason for other keys is assumed. A token may change once
/// every 20 minutes. After an earlier change, a connection refuses all tokens for the rest of the 20 minutes (Apple's engineers, developer
/// forums, thread 675879). After an expired token, it refuses all tokens forever (observed: pushy, pull request 783).
final class ClientCredentials {
    /// The provider tokens of one key.
    private struct Tokens {
        /// The most recent tokens, the newest last.
        var newest: [[UInt8]] = []
        /// The last time when a token replaced another, in seconds since 1970.
        var changedAt: Int64?
    }

    /// The number of tokens that are kept per key.
    private static let maximumTokens = 4
    /// The number of keys that a connection remembers. No team can have so many.
    private static let maximumKeys = 400

    let certificate: ClientCertificate?
    /// True if the certificate is not for the simulator's environment.
    let isOfOtherEnvironment: Bool
    /// Seconds since 1970.
    var now: Int64 = 0
    private let service: SimulatedService
    private let settings: SimulatorSettings
    private var first: ProviderGrant?
    private var last: (token: [UInt8], grant: ProviderGrant)?
    private var tokens: [String: Tokens] = [:]
    /// While set, all tokens are refused, until a time in seconds since 1970.
    private var block: (refusal: Refusal, until: Int64)?
    /// The topics that can be pushed to; nil before the first push.
    private var listed: Set<String>?
    private var topics: [[UInt8]: TopicFacts] = [:]
    private var lastTopic: (bytes: [UInt8], facts: TopicFacts)?

    init(_ service: SimulatedService, certificate: ClientCertificate?, _ settings: SimulatorSettings) {
        self.service = service
        self.certificate = certificate
        self.settings = settings
        isOfOtherEnvironment = certificate.map { !$0.isFor(settings.environment) } ?? false
    }

    // MARK: Provider tokens

    /// Judges the value of an `authorization` header. Returns nil if the header is ignored.
    ///
    /// Source: Apple, "Sending notification requests to APNs": APNs ignores the header on connections with a client
    /// certificate.
    func authorization(_ value: UnsafeBufferPointer<UInt8>) -> Result<ProviderGrant, Refusal>? {
        if certificate != nil { return nil }
        return Result { () throws(Refusal) in try grant(value) }
    }

    private func grant(_ value: UnsafeBufferPointer<UInt8>) throws(Refusal) -> ProviderGrant {
        if let block, now < block.until { throw block.refusal }
        block = nil
        if let last, value.isSame(as: last.token) {
            try checkAge(last.grant)
            return last.grant
        }
        let token = Array(value)
        let grant = try service.grant(authorization: token, settings.environment).get()
        try checkAge(grant)
        try admit(token, grant)
        last = (token, grant)
        return grant
    }

    private func checkAge(_ grant: ProviderGrant) throws(Refusal) {
        guard let age = settings.tokenAge else { return }
        if now - grant.issuedAt > age { throw Refusal(.expiredProviderToken) }
        if grant.issuedAt - now > age { throw Refusal(.invalidProviderToken) }
    }

    /// Records a token that differs from the previous one. Throws if the token must not follow the earlier ones.
    private func admit(_ token: [UInt8], _ grant: ProviderGrant) throws(Refusal) {
        if let first {
            guard first.teamID == grant.teamID else { throw Refusal(.invalidProviderToken) }
            guard Self.areRelated(first, grant) else { throw Refusal(.unrelatedKeyIDInToken) }
        }
        var known = tokens[grant.keyID] ?? Tokens()
        if !known.newest.contains(token) {
            if !known.newest.isEmpty {
                if let interval = settings.tokenInterval, let changedAt = known.changedAt, now - changedAt < interval {
                    let refusal = Refusal(.tooManyProviderTokenUpdates)
                    block = (refusal, changedAt + interval)
                    throw refusal
                }
                known.changedAt = now
            }
            known.newest = known.newest.suffix(Self.maximumTokens - 1) + [token]
        }
        if tokens.count >= Self.maximumKeys { tokens.removeAll() }
        tokens[grant.keyID] = known
        first = first ?? grant
    }

    private static func areRelated(_ first: ProviderGrant, _ other: ProviderGrant) -> Bool {
        if first.keyID == other.keyID { return true }
        if first.scope.topics == nil || other.scope.topics == nil {
            return first.scope.topics == nil && other.scope.topics == nil
        }
        return first.scope.relatedKeyID == other.keyID || other.scope.relatedKeyID == first.keyID
    }

    func refused(_ refusal: Refusal) {
        if settings.wedgesAfterExpiredToken, refusal.reason == APNSReason.expiredProviderToken.rawValue {
            block = (Refusal(.expiredProviderToken), .max)
        }
    }

    // MARK: Topics

    /// Returns the facts about a topic, from a cache.
    ///
    /// Source: Apple, "Establishing a token-based connection to APNs": an added topic works on new connections only.
    func topic(_ value: UnsafeBufferPointer<UInt8>) -> TopicFacts {
        if settings.bindsTopics, let lastTopic, value.isSame(as: lastTopic.bytes) { return lastTopic.facts }
        if listed == nil || !settings.bindsTopics {
            let current = service.topics
            if current != listed { topics.removeAll() }
            listed = current
        }
        let bytes = Array(value)
        let facts =
            topics[bytes]
            ?? TopicFacts(
                topic: String(decoding: bytes, as: UTF8.self), listed: listed ?? [],
                certificate: certificate)
        // Bounded, because a client can send any number of topics.
        if topics.count < 1000 { topics[bytes] = facts }
        lastTopic = (bytes, facts)
        return facts
    }
}

extension UnsafeBufferPointer<UInt8> {
    fileprivate func isSame(as bytes: [UInt8]) -> Bool {
        guard let baseAddress, count == bytes.count else { return false }
        return memcmp(baseAddress, bytes, count) == 0
    }
}
