import APNS
import ArgumentParser
import FoundationEssentials
import PushWorker
import TLS

/// The settings of one app.
///
/// A worker for one app has them in flags and in variables such as `APNS_WORKER_KEY`. One for several names them in
/// `APNS_WORKER_APPS`, and each has its own in variables such as `APNS_WORKER_APPS_SHOP_KEY`; what an app does not say for
/// itself, it has from the others.
struct AppSettings {
    /// The app's name, by which jobs choose it.
    let name: String
    /// Whether it is one of those that `apps` names, and can have settings of its own.
    let isNamed: Bool
    let settings: Settings
    /// What it has instead of its own credential and endpoint, where APNs is simulated.
    let simulated: SimulatedCredentials?

    // MARK: Where settings stand

    func value(_ key: SettingKey) -> SettingValue? { settings.value(key, app: isNamed ? name : nil) }

    func given(_ key: SettingKey) -> SettingValue? { settings.given(key, app: isNamed ? name : nil) }

    func text(_ key: SettingKey) -> String? { value(key)?.text }

    private func number(_ key: SettingKey) -> Int? { text(key).flatMap { Int($0) } }

    /// A secret that is a file (`key`) or stands in the setting itself as base64 (`key_base64`).
    func secret(_ file: SettingKey, _ base64: SettingKey) throws -> SecretSource? {
        // An app's own in either form comes before what all have.
        let own = isNamed ? (settings.own(file, app: name), settings.own(base64, app: name)) : (nil, nil)
        switch own == (nil, nil) ? (settings.given(file), settings.given(base64)) : own {
        case (nil, nil): return nil
        case (let path?, nil): return .file(path.text)
        case (nil, let text?): return .base64(text.text, name: text.place.description)
        case (let path?, let text?):
            throw ValidationError("\(path.place) and \(text.place) are both given: leave one out")
        }
    }

    /// Whether a setting in one of its forms is the app's own, and not one that all have.
    func isOwn(_ keys: SettingKey...) -> Bool {
        isNamed && keys.contains { settings.own($0, app: name) != nil }
    }

    func invalid(_ what: String) -> ValidationError { ValidationError(isNamed ? "the app \(name): \(what)" : what) }

    /// How to give a setting, for a sentence.
    func variable(_ key: SettingKey) -> String {
        isNamed ? SettingKey.variable(["apps", name] + key.path) : key.variable
    }

    // MARK: The app

    func app() throws -> AppConfiguration {
        let defaultTopic = simulated == nil ? "" : SimulatedCredentials.defaultTopic
        let topics = (text(.topic) ?? defaultTopic).split(separator: ",").map(String.init)
        guard let topic = topics.first else {
            throw invalid(
                "no topic: give the app's bundle identifier with --topic or \(variable(.topic))")
        }
        for topic in topics {
            guard topic.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7F }), topic.utf8.count <= 255 else {
                throw invalid("the topic has to be a bundle identifier such as com.example.app")
            }
        }
        let otherTopics = Array(topics.dropFirst())
        var app = try appWithCredential(topic: topic, otherTopics: otherTopics)
        app.otherTopics = otherTopics
        try setTransport(of: &app)
        try setEndpoint(of: &app)
        try setLimits(of: &app)
        return app
    }

    private func setEndpoint(of app: inout AppConfiguration) throws {
        if simulated != nil {
            if let place = given(.endpoint)?.place {
                throw invalid(
                    "\(place) says where to send to, and --simulate that nothing is sent to any device: leave one out")
            }
            app.endpoint = SimulatedCredentials.endpoint(usesGateway: app.usesGateway)
            return
        }
        if let given = given(.endpoint) {
            let (text, place) = (given.text, given.place)
            guard let endpoint = app.usesGateway ? APNSEndpoint(gateway: text) : APNSEndpoint(text) else {
                throw invalid("\(place) is \(text); it has to be production, sandbox or host:port")
            }
            app.endpoint = endpoint
        } else if app.usesGateway {
            app.endpoint = .productionGateway
        }
        if let ca = text(.ca) { app.trust = .file(ca) }
        app.proxy = try proxy(for: app.endpoint)
    }

    /// The proxy through which a server is reached.
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
                "the binary gateway takes certificates only: give one (--certificate) instead of a signing key")
        }
        app.transport = .gateway(gatewayOptions())
    }

    private func gatewayOptions() -> GatewayOptions {
        var options = GatewayOptions()
        options.frame = text(.gatewayFrame).flatMap(GatewayFrame.init(rawValue:)) ?? options.frame
        options.batchBytes = number(.gatewayBatchBytes) ?? options.batchBytes
        options.batchTime = number(.gatewayBatchTime) ?? options.batchTime
        options.confirmAfter = number(.gatewayConfirmAfter) ?? options.confirmAfter
        options.windowCount = number(.gatewayWindow) ?? options.windowCount
        options.windowBytes = number(.gatewayWindowBytes) ?? options.windowBytes
        options.payloadLimit = number(.gatewayPayloadLimit) ?? options.payloadLimit
        options.sendsBarriers = text(.gatewayBarrier) != "off"
        return options
    }

    private func setLimits(of app: inout AppConfiguration) throws {
        app.maximumConnections = number(.maxConnections) ?? app.maximumConnections
        app.minimumConnections = number(.minConnections) ?? app.minimumConnections
        guard app.minimumConnections <= app.maximumConnections else {
            throw invalid("there are to be more connections at the least than at the most")
        }
        app.maximumStreams = number(.maxStreams) ?? app.maximumStreams
        app.requestTimeout = number(.requestTimeout) ?? app.requestTimeout
        app.idleTimeout = number(.idleTimeout) ?? app.idleTimeout
        app.maximumConnectionAge = number(.maxConnectionAge)
        app.maximumPerSecond = number(.maxPerSecond)
        if let percent = number(.maxBadTokens) { app.maximumBadTokenShare = Double(percent) / 100 }
    }
}
