import APNS
import LegacyAPNS
import PushQueue
import TLS

/// An app of the worker: its names, credential, endpoint and limits.
package struct AppConfiguration: Sendable {
    /// The name in a job's `app` that selects this app.
    package var name: String
    /// The topic of jobs that specify none: the bundle identifier. Printable ASCII.
    package var topic: String
    package var credential: Credential
    /// How to reload the credential and the trusted authorities when their files change, and the last contents of the files.
    package var renewal: (plan: CredentialPlan, contents: [[UInt8]])?
    /// The app's other topics, which also select it.
    package var otherTopics: [String] = []
    package enum Transport: Sendable, Equatable {
        case http2
        /// The legacy binary protocol.
        case gateway(GatewayOptions)
    }

    package var transport = Transport.http2
    /// The APNs endpoint: production, the sandbox, or another server.
    package var endpoint = APNSEndpoint.production
    /// The certificates trusted for the connection to APNs.
    package var trust = TLSTrust.system
    /// The number of connections per lane that stay open while idle.
    package var minimumConnections = 1
    /// The maximum number of connections per lane.
    package var maximumConnections = 4
    /// A connection beyond the minimum is closed after this idle time, in seconds.
    package var idleTimeout = 300
    /// The maximum age of a connection in seconds; `nil` for no limit.
    package var maximumConnectionAge: Int?
    package var proxy: HTTPProxy?
    /// The maximum number of concurrent requests per connection, even if APNs allows more.
    package var maximumStreams = 1000
    /// The time limit for the answer to a request, in milliseconds.
    package var requestTimeout = 20_000
    /// The time limit in milliseconds for each step of a connection attempt: TCP, the proxy's answer, and TLS.
    package var connectTimeout = 10_000
    /// The first pause after a failed connection attempt, in milliseconds. It doubles with each further failure.
    package var reconnectBase = 250
    /// The longest pause between attempts to connect, in milliseconds.
    package var reconnectCap = 30_000
    /// The maximum number of notifications per second, for all workers together; `nil` for no limit.
    package var maximumPerSecond: Int?
    /// The `apns-expiration` of jobs that specify none, in seconds after the job was made. With 0, APNs does not store the notification.
    /// With `nil`, APNs uses its default.
    package var expiration: Int?
    /// True if a job becomes a dead letter when it violates a requirement of Apple that APNs does not check.
    package var strictPayloads = false

    package var usesGateway: Bool {
        if case .gateway = transport { true } else { false }
    }

    /// The environment recorded with invalid tokens: `production`, `sandbox`, or another server's host and port.
    package var environment: String { endpoint.environment }

    package init(name: String, topic: String, credential: Credential) {
        self.name = name
        self.topic = topic
        self.credential = credential
    }

    /// Trusts only these authorities for the connection to APNs. A file that cannot be read now, or is a named pipe, is read when the first
    /// connection is prepared. Such a file is not watched.
    /// - Throws: `SecretSource.Unreadable` if a source other than a file can't be read.
    package mutating func trust(_ authorities: SecretSource) throws {
        let bytes: [UInt8]
        do {
            bytes = try authorities.read()
        } catch {
            guard case .file(let path) = authorities else { throw error }
            return trust = .file(path)
        }
        trust = .pem(bytes, name: "\(authorities)")
        renewal?.plan.authorities = authorities
        renewal?.contents.append(bytes)
    }
}

extension AppConfiguration {
    /// The settings that select the app for a job.
    var routing: [String] { [name, topic] + otherTopics.sorted() }

    /// The settings that can make the app refuse a job, except the ``routing``.
    var rules: [String] {
        var rules = [name, "\(strictPayloads)"]
        if case .gateway(let options) = transport { rules.append("\(options.frame)") }
        if case .certificate(let identity) = credential {
            rules += identity.apns.topics.map { "\($0.name) \($0.types)" }
        }
        return rules
    }

    /// Returns the reason to send nothing if the certificate belongs to another app; `nil` otherwise.
    ///
    /// The gateway's frames carry no topic, so the certificate alone decides which app a notification reaches. Over
    /// HTTP/2 each request names its topic, and APNs refuses a topic that the certificate does not cover.
    func wrongCertificate(_ credential: Credential) -> Reason? {
        guard usesGateway, case .certificate(let identity) = credential else { return nil }
        let certificate = identity.apns
        return ([topic] + otherTopics).lazy.compactMap { CredentialReport.mismatch(certificate, $0) }.first
            .map { Reason(.certificateNotForTopic, detail: $0) }
    }

    package func tlsContext(for credential: Credential) throws -> TLSContext {
        var tls = TLSClientConfiguration()
        tls.trust = trust
        if case .http2 = transport { tls.applicationProtocols = ["h2"] }
        if case .certificate(let identity) = credential { tls.identity = identity }
        return try TLSContext.client(tls)
    }

    /// Makes an app from a worker's report, to find out which app would accept a job. It has no credential.
    /// - Returns: `nil` for a report without a topic.
    package init?(reported app: WorkerReport.App) {
        guard let topic = app.topics.first else { return nil }
        self.init(name: app.name, topic: topic, credential: .providerTokens([]))
        otherTopics = Array(app.topics.dropFirst())
        if let endpoint = APNSEndpoint(app.endpoint) { self.endpoint = endpoint }
    }
}
