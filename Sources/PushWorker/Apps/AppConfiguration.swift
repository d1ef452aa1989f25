import APNS
import TLS

/// One app that the worker sends for.
public struct AppConfiguration: Sendable {
    /// How the app shows APNs who it is.
    public enum Credential: Sendable {
        /// Signing keys, whose tokens go into each request: the first, and the next when APNs refuses it. At least one.
        case providerTokens([ProviderTokenSource])
        /// A certificate, which is shown when a connection is made.
        case certificate(TLSIdentity)

        package var tokenSources: [ProviderTokenSource] {
            if case .providerTokens(let sources) = self { sources } else { [] }
        }
    }

    /// The name that jobs choose it by (`app`).
    public var name: String
    /// The topic of jobs that name none: the bundle identifier. Printable ASCII.
    public var topic: String
    /// The credential that identifies the app to APNs.
    public var credential: Credential
    /// How to make the credential anew when what it is made of changes, and what it held when it was made.
    public var renewal: (plan: CredentialPlan, contents: [[UInt8]])?
    /// Other topics of the app, by which jobs choose it too.
    public var otherTopics: [String] = []
    /// How notifications travel.
    public enum Transport: Sendable, Equatable {
        case http2
        /// The legacy binary protocol.
        case gateway(GatewayOptions)
    }

    /// How notifications travel.
    public var transport = Transport.http2
    /// Which APNs: production, the sandbox, or another server.
    public var endpoint = APNSEndpoint.production
    /// Whom to trust as APNs.
    public var trust = TLSTrust.system
    /// Connections per lane that are kept open while nothing is sent.
    public var minimumConnections = 1
    /// Connections per lane at the most.
    public var maximumConnections = 4
    /// After how many seconds a connection beyond the minimum is closed on which nothing was sent.
    public var idleTimeout = 300
    /// After how many seconds a connection is replaced by another; `nil` for never.
    public var maximumConnectionAge: Int?
    /// The proxy through which APNs is reached; `nil` for none.
    public var proxy: HTTPProxy?
    /// Requests at once on a connection, whatever more APNs would allow.
    public var maximumStreams = 1000
    /// How long a request may go unanswered, in milliseconds.
    public var requestTimeout = 20_000
    /// How long TCP, the proxy's answer and TLS may each take, in milliseconds.
    public var connectTimeout = 10_000
    /// The first pause after a connection could not be made, in milliseconds. It doubles with each further failure.
    public var reconnectBase = 250
    /// The longest pause between attempts to connect, in milliseconds.
    public var reconnectCap = 30_000
    /// Notifications a second at the most, of all workers together; `nil` for as many as can be sent.
    public var maximumPerSecond: Int?
    /// The share of answers that call a device token bad (`BadDeviceToken`, `DeviceTokenNotForTopic`) above which the app is
    /// paused and no token marked, from 0 to 1; at 1 every such answer is believed.
    public var maximumBadTokenShare = 0.5
    /// The `apns-expiration` of jobs that name none, in seconds after the job was made; 0 for now or never, `nil` for APNs' own.
    public var expiration: Int?
    /// True if a requirement of Apple's that APNs does not check makes a dead letter of a job.
    public var strictPayloads = false

    /// True if notifications travel by the legacy binary protocol.
    public var usesGateway: Bool {
        if case .gateway = transport { true } else { false }
    }

    /// Which APNs it is, as invalid tokens have it noted: `production`, `sandbox`, or another server's host and port.
    public var environment: String { endpoint.environment }

    /// Takes what has no default.
    public init(name: String, topic: String, credential: Credential) {
        self.name = name
        self.topic = topic
        self.credential = credential
    }
}

extension AppConfiguration.Credential {
    /// The time at which it expires, in seconds since 1970; `nil` for keys, which do not.
    var certificateEnd: Int64? {
        if case .certificate(let identity) = self { identity.notAfter } else { nil }
    }
}

extension AppConfiguration {
    /// Returns the reason to send nothing with a credential whose certificate is another app's; `nil` otherwise.
    ///
    /// The gateway's frames carry no topic, so the certificate alone decides which app a notification reaches. Over HTTP/2
    /// each request names its topic, and APNs refuses one that the certificate is not for.
    func wrongCertificate(_ credential: Credential) -> Reason? {
        guard usesGateway, case .certificate(let identity) = credential else { return nil }
        let certificate = identity.apns
        return ([topic] + otherTopics).lazy.compactMap { CredentialReport.mismatch(certificate, $0) }.first
            .map { Reason(.certificateNotForTopic, detail: $0) }
    }
}

/// The settings of an app that uses the binary gateway, besides those of every app.
public struct GatewayOptions: Sendable, Equatable {
    /// Which of the protocol's commands to use.
    public var frame = GatewayFrame.items
    /// Maximum bytes of a write, unless a single notification is larger. The default is that of a TLS record.
    public var batchBytes = 16_384
    /// How long a write waits for more, in milliseconds.
    public var batchTime = 2
    /// How long the gateway must have had a notification without a word about it, to count as delivered; in milliseconds.
    public var confirmAfter = 2000
    /// True if a deliberately bad item is sent where certainty is wanted at once.
    public var sendsBarriers = true
    /// Maximum notifications without confirmation on a connection. They are confirmed all at once, and nothing is claimed
    /// while more settlements wait for Redis than a consumer allows: 20,000 gave half the throughput.
    public var windowCount = 5000
    /// Maximum bytes of those.
    public var windowBytes = 32 << 20
    /// The longest payload, in bytes: 2048, or 256 for the oldest.
    public var payloadLimit = 2048

    /// Apple's, as it was at the end.
    public init() {}
}
