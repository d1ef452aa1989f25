import APNS
import TLS

/// A client's push certificate.
struct ClientCertificate: Sendable {
    /// The bundle identifier that the certificate is for.
    let topic: String
    /// The topics of the certificate's list; nil without a list. It can then send to all topics of its app.
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

    /// Returns true if the certificate names the environment, or none at all.
    ///
    /// Source: Apple Worldwide Developer Relations, Certification Practice Statement: one extension per environment.
    func isFor(_ environment: APNSEnvironment) -> Bool { environments.isEmpty || environments.contains(environment) }
}

/// The rights of a client on its connection, by its certificate or its provider tokens.
final class ClientCredentials {
    /// The verdict on a request's provider token.
    enum Authorization {
        /// - Parameter topics: the bundle identifiers of a topic-specific key; nil for all of the team's.
        case granted(topics: Set<String>?)
        case refused(Refusal)
    }

    let certificate: ClientCertificate?
    /// True if the certificate is not for the simulator's environment.
    let isOfOtherEnvironment: Bool
    /// Seconds since 1970.
    var now: Int64 = 0
    private let service: SimulatedService
    private let settings: SimulatorSettings
    private var history: ProviderTokenHistory
    private var last: (token: [UInt8], grant: ProviderGrant)?
    /// The topics that can be pushed to; nil before the first push.
    private var listed: Set<String>?
    private var topics: [[UInt8]: TopicFacts] = [:]
    private var lastTopic: (bytes: [UInt8], facts: TopicFacts)?

    init(_ service: SimulatedService, certificate: ClientCertificate?, _ settings: SimulatorSettings) {
        self.service = service
        self.certificate = certificate
        self.settings = settings
        isOfOtherEnvironment = certificate.map { !$0.isFor(settings.environment) } ?? false
        history = ProviderTokenHistory(settings)
    }

    /// Judges the value of an `authorization` header; nil if the header is ignored.
    ///
    /// Source: Apple, "Sending notification requests to APNs": APNs ignores the header on connections with a client
    /// certificate.
    func authorization(_ value: UnsafeBufferPointer<UInt8>) -> Authorization? {
        if certificate != nil { return nil }
        if let refusal = history.refusal(now: now) { return .refused(refusal) }
        if let last, value.isSame(as: last.token) {
            if let refusal = history.refusal(issuedAt: last.grant.issuedAt, now: now) { return .refused(refusal) }
            return .granted(topics: last.grant.scope.topics)
        }
        let bytes = Array(value)
        switch service.standing(authorization: bytes, settings.environment) {
        case .refused(let refusal): return .refused(refusal)
        case .genuine(let grant):
            if let refusal = history.refusal(issuedAt: grant.issuedAt, now: now) { return .refused(refusal) }
            if let refusal = history.admit(grant, bytes, now: now) { return .refused(refusal) }
            last = (bytes, grant)
            return .granted(topics: grant.scope.topics)
        }
    }

    /// Records the answer to a request.
    func refused(_ refusal: Refusal) {
        if refusal.reason == APNSReason.expiredProviderToken.rawValue { history.tokenExpired() }
    }

    /// Returns the facts about a topic.
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
        // Bounded, because a client can send any number of different topics.
        if topics.count < 1000 { topics[bytes] = facts }
        lastTopic = (bytes, facts)
        return facts
    }
}

extension UnsafeBufferPointer<UInt8> {
    fileprivate func isSame(as bytes: [UInt8]) -> Bool {
        guard count == bytes.count else { return false }
        return bytes.withUnsafeBufferPointer { other in
            for index in 0..<count where self[index] != other[index] { return false }
            return true
        }
    }
}
