import APNS
import ArgumentParser
import PrintableText
import PushWorker
import TLS

// The credential by which APNs identifies an app.
extension AppSettings {
    /// Returns the app with only its credential and topics.
    func appWithCredential(topic: String, otherTopics: [String]) throws -> AppConfiguration {
        do {
            guard let simulated else { return try app(topic: topic, credentialPlan()) }
            let usesGateway = text(.transport) == "gateway"
            return AppConfiguration(
                name: name, topic: topic,
                credential: try simulated.credential(
                    topic: topic, otherTopics: otherTopics, usesGateway: usesGateway))
        } catch let error as CommandFailure {
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
        var key = try secret(.key, .keyBase64)
        var certificate = try secret(.certificate, .certificateBase64)
        let ownsKey = isOwn(.key, .keyBase64)
        let ownsCertificate = isOwn(.certificate, .certificateBase64)
        if ownsKey, !ownsCertificate { certificate = nil }
        if ownsCertificate, !ownsKey { key = nil }
        switch (key, certificate) {
        case (nil, nil):
            throw invalid(
                "no credential: set a signing key (--key, --key-id, --team-id) or a certificate (--certificate)")
        case (.some, .some):
            throw invalid("both a signing key and a certificate are set; omit one of them")
        case (let key?, nil):
            return try keys(first: key)
        case (nil, let certificate?):
            // The common key belongs to the common certificate, if there is one.
            let usesKey =
                !ownsCertificate || isOwn(.certificateKey, .certificateKeyBase64)
                || !isCommon(.certificate, .certificateBase64)
            return CredentialPlan(
                .certificate(
                    certificate, key: usesKey ? try secret(.certificateKey, .certificateKeyBase64) : nil,
                    passphrase: passphrase(.certificatePassphrase, .certificatePassphraseFile)))
        }
    }

    private func keys(first: SecretSource) throws -> CredentialPlan {
        guard let teamID = text(.teamID) else {
            throw invalid(
                "a signing key needs its key ID and team ID: --key-id and --team-id, or \(variable(.keyID)) and \(variable(.teamID))"
            )
        }
        guard teamID.utf8.count == 10, teamID.utf8.allSatisfy({ $0 &- 0x30 < 10 || $0 &- 0x41 < 26 }) else {
            let place = value(.teamID)?.place.description ?? variable(.teamID)
            throw invalid(
                "\(place) is \(teamID.printable); a team ID has ten capital letters and digits, such as TEAM123456; "
                    + "Apple's developer site shows it under Membership")
        }
        func key(
            _ source: SecretSource, id: Setting, isOwn ownsKey: Bool, _ passphrase: Setting, _ passphraseFile: Setting
        ) throws -> CredentialPlan.Key {
            // The common ID is that of the common key, if there is one.
            let isOfOther = ownsKey && !isOwn(id) && isCommon(.key, .keyBase64)
            let given = isOfOther ? nil : text(id)
            guard let keyID = given ?? Self.keyID(inNameOf: source) else {
                throw invalid("the signing key \(source) needs its ID: \(id.flag ?? "") or \(variable(id))")
            }
            if let named = Self.keyID(inNameOf: source), named != keyID {
                let place = value(id)?.place.description ?? variable(id)
                Terminal.noteOnce(
                    "warning: \(place) is \(keyID.printable), but the file \(source) has the name of the key \(named)\n"
                )
            }
            guard keyID.utf8.count == 10, keyID.utf8.allSatisfy({ $0 &- 0x30 < 10 || $0 &- 0x41 < 26 }) else {
                let place = value(id)?.place.description ?? variable(id)
                throw invalid(
                    "\(place) is \(keyID.printable); a key ID has ten capital letters and digits, such as ABC123DEFG")
            }
            return CredentialPlan.Key(
                source: source, passphrase: self.passphrase(passphrase, passphraseFile), keyID: keyID, teamID: teamID)
        }
        let ownsKey = isOwn(.key, .keyBase64)
        var keys = [try key(first, id: .keyID, isOwn: ownsKey, .keyPassphrase, .keyPassphraseFile)]
        let ownsNext = isOwn(.nextKey, .nextKeyBase64)
        // The common next key replaces the common key.
        if ownsNext || !ownsKey, let next = try secret(.nextKey, .nextKeyBase64) {
            keys.append(try key(next, id: .nextKeyID, isOwn: ownsNext, .nextKeyPassphrase, .nextKeyPassphraseFile))
        }
        return CredentialPlan(.keys(keys))
    }

    /// Returns the passphrase. A file stays a file, so that it is read again with the credential.
    private func passphrase(_ key: Setting, _ file: Setting) -> SecretSource? {
        if let file = text(file) { return .file(file) }
        return value(key).map { .bytes(Array($0.text.utf8), name: $0.place.description) }
    }

    /// Returns the key ID in a file name: Apple names the file `AuthKey_<key ID>.p8`.
    private static func keyID(inNameOf source: SecretSource) -> String? {
        guard case .file(let path) = source else { return nil }
        guard let file = path.split(separator: "/").last, file.hasPrefix("AuthKey_"), file.hasSuffix(".p8") else {
            return nil
        }
        let id = file.dropFirst("AuthKey_".count).dropLast(".p8".count)
        return id.count == 10 ? String(id) : nil
    }
}
