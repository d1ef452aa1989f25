import APNS
import ArgumentParser
import PushWorker
import TLS

/// The one app of a worker that is configured by flags and environment.
struct AppOptions: ParsableArguments {
    @Option(help: "The app's bundle identifier, the topic of jobs that name none. (APNS_WORKER_TOPIC)")
    var topic: String?

    @Option(help: "The signing key, AuthKey_….p8 of Apple's developer site. (APNS_WORKER_KEY)")
    var key: String?

    @Option(help: "The signing key's ten-character ID. (APNS_WORKER_KEY_ID)")
    var keyID: String?

    @Option(help: "The team's ten-character ID. (APNS_WORKER_TEAM_ID)")
    var teamID: String?

    @Option(help: "Instead of a key: the client certificate, PEM, with its chain. (APNS_WORKER_CERTIFICATE)")
    var certificate: String?

    @Option(help: "The certificate's private key, PEM. (APNS_WORKER_CERTIFICATE_KEY; default the certificate's file)")
    var certificateKey: String?

    @Option(help: "A file with the private key's passphrase. (APNS_WORKER_CERTIFICATE_PASSPHRASE_FILE)")
    var certificatePassphraseFile: String?

    @Option(help: "production, sandbox, or host:port of another server. (APNS_WORKER_ENDPOINT; default production)")
    var endpoint: String?

    @Option(help: "A PEM file with the CAs to trust, instead of the system's. (APNS_WORKER_CA)")
    var ca: String?

    @Option(help: "Connections per lane at the most. (APNS_WORKER_MAX_CONNECTIONS; default 4)")
    var maxConnections: Int?

    @Option(help: "Requests at once on a connection, if APNs allows them. (APNS_WORKER_MAX_STREAMS; default 1000)")
    var maxStreams: Int?

    @Option(help: "How long a request may go unanswered, in ms. (APNS_WORKER_REQUEST_TIMEOUT; default 20000)")
    var requestTimeout: Int?

    func app() throws -> AppConfiguration {
        guard let topic = Setting.text(topic, "APNS_WORKER_TOPIC") else {
            throw ValidationError("no topic: give the app's bundle identifier with --topic or APNS_WORKER_TOPIC")
        }
        guard topic.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7F }), topic.utf8.count <= 255 else {
            throw ValidationError("the topic has to be a bundle identifier such as com.example.app")
        }
        var app = AppConfiguration(name: "default", topic: topic, credential: try credential())
        if let text = Setting.text(endpoint, "APNS_WORKER_ENDPOINT") {
            guard let endpoint = APNSEndpoint(text) else {
                throw ValidationError(
                    "APNS_WORKER_ENDPOINT (or --endpoint) is \(text); it has to be production, sandbox or host:port")
            }
            app.endpoint = endpoint
        }
        if let ca = Setting.text(ca, "APNS_WORKER_CA") { app.trust = .file(ca) }
        app.maximumConnections =
            try Setting.number(maxConnections, "APNS_WORKER_MAX_CONNECTIONS", in: 1...100) ?? app.maximumConnections
        app.maximumStreams =
            try Setting.number(maxStreams, "APNS_WORKER_MAX_STREAMS", in: 1...10_000) ?? app.maximumStreams
        app.requestTimeout =
            try Setting.number(requestTimeout, "APNS_WORKER_REQUEST_TIMEOUT", in: 100...600_000) ?? app.requestTimeout
        return app
    }

    private func credential() throws -> AppConfiguration.Credential {
        let keyPath = Setting.text(key, "APNS_WORKER_KEY")
        let certificatePath = Setting.text(certificate, "APNS_WORKER_CERTIFICATE")
        switch (keyPath, certificatePath) {
        case (nil, nil):
            throw ValidationError(
                "no credential: give a signing key (--key, --key-id, --team-id) or a certificate (--certificate)")
        case (.some, .some):
            throw ValidationError("both a signing key and a certificate are given; an app has one of them")
        case (let path?, nil):
            guard let keyID = Setting.text(keyID, "APNS_WORKER_KEY_ID"),
                let teamID = Setting.text(teamID, "APNS_WORKER_TEAM_ID")
            else {
                throw ValidationError("a signing key needs its ID and the team's: --key-id and --team-id")
            }
            let pem = try Setting.file(path, for: "signing key")
            do {
                return .providerToken(
                    try ProviderTokenSource(key: SigningKey(pem: pem), keyID: keyID, teamID: teamID))
            } catch {
                throw ValidationError("the signing key \(path): \(error)")
            }
        case (nil, let path?):
            var passphrase: String?
            if let file = Setting.text(certificatePassphraseFile, "APNS_WORKER_CERTIFICATE_PASSPHRASE_FILE") {
                let bytes = try Setting.file(file, for: "passphrase file")
                passphrase = String(decoding: bytes, as: UTF8.self).trimmingSuffix { $0.isNewline }
            }
            do {
                return .certificate(
                    try TLSIdentity(
                        certificateFile: path,
                        keyFile: Setting.text(certificateKey, "APNS_WORKER_CERTIFICATE_KEY") ?? path,
                        passphrase: passphrase))
            } catch {
                throw ValidationError("\(error)")
            }
        }
    }
}

extension String {
    fileprivate func trimmingSuffix(while condition: (Character) -> Bool) -> String {
        var rest = self[...]
        while let last = rest.last, condition(last) { rest.removeLast() }
        return String(rest)
    }
}
