import APNS
import ArgumentParser
import FoundationEssentials
import LegacyAPNS
import PrintableText
import PushWorker
import TLS

/// The settings of one app.
///
/// A worker for one app has them in flags and in variables such as `APNS_WORKER_KEY`. A worker for several apps names
/// them in `APNS_WORKER_APPS`, and each has its own settings in variables such as `APNS_WORKER_APPS_SHOP_KEY`; an app
/// without its own value uses the common one.
struct AppSettings {
    /// The name that jobs select the app by.
    let name: String
    /// True if the setting `apps` names the app, which can then have its own settings.
    let isNamed: Bool
    let settings: Settings
    /// The credential and the endpoint that replace the app's own if APNs is simulated.
    let simulated: SimulatedCredentials?

    // MARK: Lookup

    func value(_ key: Setting) -> SettingValue? { settings.value(key, app: isNamed ? name : nil) }

    func given(_ key: Setting) -> SettingValue? { settings.given(key, app: isNamed ? name : nil) }

    func text(_ key: Setting) -> String? { value(key)?.text }

    /// Returns a secret that is in a file (`key`), or in the setting itself as base64 (`key_base64`).
    func secret(_ file: Setting, _ base64: Setting) throws -> SecretSource? {
        // An app's own value in either form precedes the common one.
        let own = isNamed ? (settings.own(file, app: name), settings.own(base64, app: name)) : (nil, nil)
        return try own == (nil, nil) ? settings.secret(file, base64) : SettingValue.secret(own.0, own.1)
    }

    /// True if a setting in one of its forms is the app's own rather than common.
    func isOwn(_ keys: Setting...) -> Bool {
        isNamed && keys.contains { settings.own($0, app: name) != nil }
    }

    /// True if a setting in one of its forms is given for all apps.
    func isCommon(_ keys: Setting...) -> Bool { keys.contains { settings.given($0) != nil } }

    func invalid(_ what: String) -> CommandFailure {
        CommandFailure(.configuration, isNamed ? "the app \(name): \(what)" : what)
    }

    /// Returns the variable of a setting, for a message.
    func variable(_ key: Setting) -> String {
        isNamed ? Setting.variable(["apps", name] + key.path) : key.variable
    }

    // MARK: The app

    func app() throws -> AppConfiguration {
        let defaultTopic = simulated == nil ? "" : SimulatedCredentials.defaultTopic
        let topics = (text(.topic) ?? defaultTopic).split(separator: ",").map(String.init)
        guard let topic = topics.first else {
            throw invalid(
                "no topic: set the app's bundle identifier with --topic or \(variable(.topic))")
        }
        for topic in topics {
            guard topic.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7F }), topic.utf8.count <= 255 else {
                let place = value(.topic)?.place.description ?? variable(.topic)
                throw invalid(
                    "\(place) names the topic \(topic.printable); a topic is a bundle identifier such as com.example.app"
                )
            }
        }
        let otherTopics = Array(topics.dropFirst())
        // All mistakes are reported together, because each would cost a deployment.
        var mistakes: [String] = []
        var app = AppConfiguration(name: name, topic: topic, credential: .providerTokens([]))
        collect(&mistakes) { app = try appWithCredential(topic: topic, otherTopics: otherTopics) }
        let hasCredential = mistakes.isEmpty
        app.otherTopics = otherTopics
        if hasCredential { collect(&mistakes) { try setTransport(of: &app) } }
        collect(&mistakes) { try setEndpoint(of: &app) }
        collect(&mistakes) { try setLimits(of: &app) }
        guard mistakes.isEmpty else { throw CommandFailure(.configuration, mistakes.joined(separator: "\n")) }
        return app
    }

    private func collect(_ mistakes: inout [String], _ body: () throws -> Void) {
        do {
            try body()
        } catch {
            mistakes.append(CommandFailure.message(of: error))
        }
    }

    private func setEndpoint(of app: inout AppConfiguration) throws {
        if simulated != nil {
            if case .flag(let flag)? = settings.given(.endpoint)?.place {
                throw invalid("\(flag) and --simulate cannot be combined; omit one of them")
            }
            app.endpoint = SimulatedCredentials.endpoint(usesGateway: app.usesGateway)
            return
        }
        if let given = given(.endpoint) {
            app.endpoint = try given.endpoint { app.usesGateway ? APNSEndpoint(gateway: $0) : APNSEndpoint($0) }
        } else if app.usesGateway {
            app.endpoint = .productionGateway
        }
        if let ca = try secret(.ca, .caBase64) {
            do {
                try app.trust(ca)
                // A directory of authorities is left to OpenSSL.
                if case .file(let path) = ca, !FileManager.default.fileExists(atPath: path) { _ = try ca.read() }
            } catch {
                throw CommandFailure(.configuration, "\(error)")
            }
        }
        app.proxy = try proxy(for: app.endpoint)
    }

    /// Returns the proxy for connections to a server.
    func proxy(for endpoint: APNSEndpoint) throws -> HTTPProxy? {
        do {
            if let url = text(.proxy) { return url == "none" ? nil : try HTTPProxy(url) }
            return try HTTPProxy.fromEnvironment(ProcessInfo.processInfo.environment, for: endpoint)
        } catch {
            throw invalid("\(error)")
        }
    }

    private func setTransport(of app: inout AppConfiguration) throws {
        guard text(.transport) == "gateway" else { return }
        guard case .certificate = app.credential else {
            throw invalid(
                "the binary gateway needs a certificate (--certificate) instead of a signing key")
        }
        var options = GatewayOptions()
        settings.fill(&options, app: isNamed ? name : nil)
        app.transport = .gateway(options)
    }

    private func setLimits(of app: inout AppConfiguration) throws {
        settings.fill(&app, app: isNamed ? name : nil)
        guard app.minimumConnections <= app.maximumConnections else {
            throw invalid("min_connections is more than max_connections")
        }
    }

    // MARK: The credential

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
            // The common ID belongs to the common key, if there is a common key.
            let isOfOther = ownsKey && !isOwn(id) && isCommon(.key, .keyBase64)
            let given = isOfOther ? nil : text(id)
            if Self.isOfAnotherService(source) {
                throw invalid(
                    "\(source) is a key for in-app purchases by its name; APNs needs the file AuthKey_….p8 of a key with Apple Push "
                        + "Notifications service")
            }
            guard let keyID = given ?? Self.keyID(inNameOf: source) else {
                // A missing key file is reported before a missing key ID.
                do { _ = try source.read() } catch { throw invalid("\(error)") }
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

    /// Returns the passphrase. A file is not read yet: it is read again with each credential.
    private func passphrase(_ key: Setting, _ file: Setting) -> SecretSource? {
        if let file = text(file) { return .file(file) }
        return value(key).map { .bytes(Array($0.text.utf8), name: $0.place.description) }
    }

    /// Returns the key ID in a file name: Apple names the file `AuthKey_<key ID>.p8`, and browsers number its copies.
    private static func keyID(inNameOf source: SecretSource) -> String? {
        guard case .file(let path) = source, let file = path.split(separator: "/").last else { return nil }
        return file.wholeMatch(of: /(?:APNs)?AuthKey_([A-Z0-9]{10})(?: ?\([0-9]+\)| copy)?\.p8/).map { String($0.1) }
    }

    /// True for a file that Apple's developer site names for another service.
    private static func isOfAnotherService(_ source: SecretSource) -> Bool {
        guard case .file(let path) = source else { return false }
        return path.split(separator: "/").last?.hasPrefix("SubscriptionKey_") == true
    }
}
