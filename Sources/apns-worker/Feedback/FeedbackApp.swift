import APNS
import ArgumentParser
import LegacyAPNS
import NIOCore
import PushWorker
import TLS

/// An app whose feedback service is read.
struct FeedbackApp: Sendable {
    let name: String
    let topic: String
    /// The environment of the app's tokens, as recorded with invalid tokens.
    let environment: String
    let endpoint: APNSEndpoint
    let proxy: HTTPProxy?
    let trust: TLSTrust
    private let connectTimeout: TimeAmount
    /// The plan for the credential, which is read again for each connection because certificates are renewed while a process runs.
    private let plan: CredentialPlan

    /// - Throws: ``CommandFailure``.
    init(_ settings: AppSettings) throws {
        let app = try settings.app()
        guard let plan = app.renewal?.plan else { throw settings.invalid("no credential") }
        if case .certificate(let identity) = app.credential, let mismatch = Self.mismatch(identity, app.topic) {
            throw settings.invalid(mismatch)
        }
        self.plan = plan
        name = app.name
        topic = app.topic
        environment = app.environment
        trust = app.trust
        connectTimeout = .milliseconds(Int64(app.connectTimeout))
        if let given = settings.given(.feedbackEndpoint) {
            endpoint = try given.endpoint { APNSEndpoint(feedback: $0) }
        } else {
            endpoint = app.endpoint.feedback
        }
        proxy = try settings.proxy(for: endpoint)
    }

    /// Returns the reason not to read the service with this certificate: the service would send another app's tokens, and forget them.
    private static func mismatch(_ identity: TLSIdentity, _ topic: String) -> String? {
        CredentialReport.mismatch(identity.apns, topic).map {
            "\($0); the feedback service was not read, and keeps its records"
        }
    }

    /// - Throws: an error about the certificate or the authorities.
    func dialer() throws -> Dialer {
        var tls = TLSClientConfiguration()
        let (credential, contents) = try plan.make()
        tls.trust = plan.trust(from: contents) ?? trust
        if case .certificate(let identity) = credential {
            // The certificate may have been renewed since the last time.
            if let mismatch = Self.mismatch(identity, topic) { throw CommandFailure(.configuration, mismatch) }
            tls.identity = identity
        }
        var dialer = Dialer(endpoint: endpoint, tls: try TLSContext.client(tls), proxy: proxy)
        dialer.connectTimeout = connectTimeout
        return dialer
    }

    /// A selected app, or the reason why its service cannot be read.
    struct Choice: Sendable {
        let name: String
        let app: Result<FeedbackApp, CommandFailure>
    }

    /// Returns the apps that have a certificate, or the named ones among them.
    /// - Throws: ``CommandFailure`` if there is nothing to do. A problem with one of several apps does not affect the others.
    static func choose(_ names: [String], _ settings: Settings) throws -> [Choice] {
        let all = try WorkerSettings(settings).appSettings()
        if let unknown = names.first(where: { name in !all.contains { $0.name == name } }) {
            throw CommandFailure(
                .usage,
                "unknown app \(unknown); known apps: \(all.map(\.name).joined(separator: ", "))")
        }
        let choices: [Choice] = try all.compactMap { settings in
            guard names.isEmpty || names.contains(settings.name) else { return nil }
            do {
                if case .keys = try settings.credentialPlan().kind {
                    guard names.contains(settings.name) else { return nil }
                    throw CommandFailure(
                        .configuration,
                        "the app \(settings.name) has a signing key, but a feedback service requires a certificate")
                }
                return Choice(
                    name: settings.name, app: .success(try FeedbackApp(settings)))
            } catch let error as CommandFailure {
                return Choice(name: settings.name, app: .failure(error))
            }
        }
        guard !choices.isEmpty else {
            throw CommandFailure(
                .configuration,
                "no app has a certificate, which a feedback service requires; set one with --certificate or "
                    + "APNS_WORKER_CERTIFICATE")
        }
        let failures = choices.compactMap { if case .failure(let error) = $0.app { error } else { nil } }
        if let first = failures.first, failures.count == choices.count { throw first }
        return choices
    }
}
