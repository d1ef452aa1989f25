import APNS
import ArgumentParser
import PushWorker

// What APNs knows an app by.
extension AppSettings {
    /// The app with nothing but what APNs knows it by.
    func appWithCredential(topic: String) throws -> AppConfiguration {
        do {
            guard let simulated else { return try app(topic: topic, credentialPlan()) }
            let usesGateway = setting(flags.transport, "TRANSPORT")?.value == "gateway"
            return AppConfiguration(
                name: name, topic: topic,
                credential: try simulated.credential(topic: topic, usesGateway: usesGateway))
        } catch let error as ValidationError {
            throw error
        } catch {
            throw invalid("\(error)")
        }
    }

    private func app(topic: String, _ plan: CredentialPlan) throws -> AppConfiguration {
        let (credential, contents) = try plan.make()
        var app = AppConfiguration(name: name, topic: topic, credential: credential)
        app.renewal = (plan, contents)
        return app
    }

    func credentialPlan() throws -> CredentialPlan {
        var key = try secret(flags.key, "KEY")
        var certificate = try secret(flags.certificate, "CERTIFICATE")
        if isOwn("KEY"), !isOwn("CERTIFICATE") { certificate = nil }
        if isOwn("CERTIFICATE"), !isOwn("KEY") { key = nil }
        switch (key, certificate) {
        case (nil, nil):
            throw invalid(
                "no credential: give a signing key (--key, --key-id, --team-id) or a certificate (--certificate)")
        case (.some, .some):
            throw invalid("both a signing key and a certificate are given; an app has one of them")
        case (let key?, nil):
            return try keys(first: key)
        case (nil, let certificate?):
            return CredentialPlan(
                .certificate(
                    certificate, key: try secret(flags.certificateKey, "CERTIFICATE_KEY"),
                    passphrase: passphrase(flags.certificatePassphraseFile, "CERTIFICATE_PASSPHRASE")))
        }
    }

    private func keys(first: SecretSource) throws -> CredentialPlan {
        guard let teamID = text(flags.teamID, "TEAM_ID") else {
            throw invalid(
                "a signing key needs its ID and its team's: --key-id and --team-id, or \(ownPrefix ?? Self.prefix)KEY_ID "
                    + "and …TEAM_ID")
        }
        func key(_ source: SecretSource, _ flag: String?, _ prefix: String) throws -> CredentialPlan.Key {
            guard let keyID = text(flag, "\(prefix)KEY_ID") ?? Self.keyID(inNameOf: source) else {
                throw invalid(
                    "the signing key \(source) needs its ID: --\(prefix.isEmpty ? "" : "next-")key-id or "
                        + "\(ownPrefix ?? Self.prefix)\(prefix)KEY_ID")
            }
            return CredentialPlan.Key(
                source: source, passphrase: passphrase(nil, "\(prefix)KEY_PASSPHRASE"), keyID: keyID, teamID: teamID)
        }
        var keys = [try key(first, flags.keyID, "")]
        if let next = try secret(flags.nextKey, "NEXT_KEY") { keys.append(try key(next, flags.nextKeyID, "NEXT_")) }
        return CredentialPlan(.keys(keys))
    }

    private func passphrase(_ flag: String?, _ variable: String) -> SecretSource? {
        if let file = text(flag, "\(variable)_FILE") { return .file(file) }
        return setting(nil, variable).map { .bytes(Array($0.value.utf8), name: $0.place) }
    }

    /// Apple names the file `AuthKey_<key ID>.p8`.
    private static func keyID(inNameOf source: SecretSource) -> String? {
        guard case .file(let path) = source else { return nil }
        guard let file = path.split(separator: "/").last, file.hasPrefix("AuthKey_"), file.hasSuffix(".p8") else {
            return nil
        }
        let id = file.dropFirst("AuthKey_".count).dropLast(".p8".count)
        return id.count == 10 ? String(id) : nil
    }
}
