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
    /// The name by which jobs select the app.
    let name: String
    /// True if `apps` names it, so that it can have its own settings.
    let isNamed: Bool
    let settings: Settings
    /// The credential and endpoint used instead of its own if APNs is simulated.
    let simulated: SimulatedCredentials?

    // MARK: Lookup

    func value(_ key: Setting) -> SettingValue? { settings.value(key, app: isNamed ? name : nil) }

    func given(_ key: Setting) -> SettingValue? { settings.given(key, app: isNamed ? name : nil) }

    func text(_ key: Setting) -> String? { value(key)?.text }

    /// Returns a secret that is in a file (`key`), or in the setting itself as base64 (`key_base64`).
    func secret(_ file: Setting, _ base64: Setting) throws -> SecretSource? {
        // An app's own value in either form precedes the common one.
        let own = isNamed ? (settings.own(file, app: name), settings.own(base64, app: name)) : (nil, nil)
        switch own == (nil, nil) ? (settings.given(file), settings.given(base64)) : own {
        case (nil, nil): return nil
        case (let path?, nil): return .file(path.text)
        case (nil, let text?): return .base64(text.text, name: text.place.description)
        case (let path?, let text?):
            throw CommandFailure(.configuration, "\(path.place) and \(text.place) are both set; omit one of them")
        }
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
        // All mistakes are reported together: each costs a deployment.
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
            try given.refuseMistypedEnvironment()
            let (text, place) = (given.text, given.place)
            guard let endpoint = app.usesGateway ? APNSEndpoint(gateway: text) : APNSEndpoint(text) else {
                throw invalid("\(place) is \(text); it must be production, sandbox or host:port")
            }
            app.endpoint = endpoint
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
}
