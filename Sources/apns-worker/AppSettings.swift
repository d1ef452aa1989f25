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
    /// What the names of the app's own variables begin with.
    let ownPrefix: String?
    let flags: AppOptions
    /// What it has instead of its own credential and endpoint, where APNs is simulated.
    let simulated: SimulatedCredentials?

    static let prefix = "APNS_WORKER_"

    /// The apps that a worker is configured for.
    /// - Parameter simulated: what they have instead of their own credentials, where APNs is simulated; their endpoints are
    ///   to be filled in when they are known.
    static func apps(_ flags: AppOptions, simulated: SimulatedCredentials? = nil) throws -> [AppConfiguration] {
        let apps = try all(flags, simulated: simulated).map { try $0.app() }
        for (index, app) in apps.enumerated() {
            let topics = [app.topic] + app.otherTopics
            let others = apps[..<index].filter { !Set([$0.topic] + $0.otherTopics).isDisjoint(with: topics) }
            // Environments of one app are two apps with one topic; jobs choose between them by `app`.
            if let other = others.first, other.endpoint == app.endpoint {
                throw ValidationError(
                    "APNS_WORKER_APPS: \(other.name) and \(app.name) have a topic and an endpoint in common")
            }
        }
        return apps
    }

    /// The settings of all apps.
    static func all(_ flags: AppOptions, simulated: SimulatedCredentials? = nil) throws -> [AppSettings] {
        guard let list = Setting.text(nil, "APNS_WORKER_APPS") else {
            return [AppSettings(name: "default", ownPrefix: nil, flags: flags, simulated: simulated)]
        }
        let names = list.split(separator: ",").map { $0.trimmingPrefix { $0 == " " } }
            .map { String($0.reversed().drop { $0 == " " }.reversed()) }
        guard !names.isEmpty else { throw ValidationError("APNS_WORKER_APPS is set, and names no app") }
        var prefixes: Set<String> = []
        return try names.map { name in
            let isPlain = name.utf8.allSatisfy {
                $0 &- 0x30 < 10 || ($0 | 0x20) &- 0x61 < 26 || $0 == 0x2D || $0 == 0x2E || $0 == 0x5F
            }
            guard isPlain, (1...64).contains(name.utf8.count) else {
                throw ValidationError(
                    "APNS_WORKER_APPS: \(name) is no name for an app; it has to be letters, digits, -, . and _")
            }
            let own = name.uppercased().map { $0.isLetter || $0.isNumber ? String($0) : "_" }.joined()
            guard prefixes.insert(own).inserted else {
                throw ValidationError("APNS_WORKER_APPS: two apps have the variables \(prefix)APPS_\(own)_…")
            }
            return AppSettings(
                name: name, ownPrefix: "\(prefix)APPS_\(own)_", flags: flags, simulated: simulated)
        }
    }

    // MARK: Where settings stand

    /// What a setting is, and where that stands.
    func setting(_ flag: String?, _ variable: String) -> (value: String, place: String)? {
        if let ownPrefix, let value = Setting.text(nil, ownPrefix + variable) { return (value, ownPrefix + variable) }
        let common = Self.prefix + variable
        return Setting.text(flag, common).map { ($0, flag == nil ? common : "\(common)'s flag") }
    }

    func text(_ flag: String?, _ variable: String) -> String? { setting(flag, variable)?.value }

    private func number(_ flag: Int?, _ variable: String, in range: ClosedRange<Int>) throws -> Int? {
        if let ownPrefix, Setting.text(nil, ownPrefix + variable) != nil {
            return try Setting.number(nil, ownPrefix + variable, in: range)
        }
        return try Setting.number(flag, Self.prefix + variable, in: range)
    }

    /// A secret that is a file (`KEY`) or stands in a variable as base64 (`KEY_BASE64`).
    func secret(_ flag: String?, _ variable: String) throws -> SecretSource? {
        // An app's own in either form comes before what all have.
        for prefix in [ownPrefix, Self.prefix].compactMap({ $0 }) {
            let flag = prefix == Self.prefix ? flag : nil
            let file = Setting.text(flag, prefix + variable)
            let base64 = Setting.text(nil, prefix + variable + "_BASE64")
            switch (file, base64) {
            case (nil, nil): continue
            case (let path?, nil): return .file(path)
            case (nil, let text?): return .base64(text, name: prefix + variable + "_BASE64")
            default:
                throw ValidationError(
                    "\(prefix)\(variable) and \(prefix)\(variable)_BASE64 are both given: leave one out")
            }
        }
        return nil
    }

    /// Whether a setting is the app's own, and not one that all have.
    func isOwn(_ variable: String) -> Bool {
        guard let ownPrefix else { return false }
        return Setting.text(nil, ownPrefix + variable) != nil
            || Setting.text(nil, ownPrefix + variable + "_BASE64") != nil
    }

    func invalid(_ what: String) -> ValidationError {
        ValidationError(ownPrefix == nil ? what : "the app \(name): \(what)")
    }

    // MARK: The app

    func app() throws -> AppConfiguration {
        let defaultTopic = simulated == nil ? "" : SimulatedCredentials.defaultTopic
        let topics = (text(flags.topic, "TOPIC") ?? defaultTopic).split(separator: ",").map(String.init)
        guard let topic = topics.first else {
            throw invalid(
                "no topic: give the app's bundle identifier with --topic or \(ownPrefix ?? Self.prefix)TOPIC")
        }
        for topic in topics {
            guard topic.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7F }), topic.utf8.count <= 255 else {
                throw invalid("the topic has to be a bundle identifier such as com.example.app")
            }
        }
        var app = try appWithCredential(topic: topic)
        app.otherTopics = Array(topics.dropFirst())
        try setTransport(of: &app)
        try setEndpoint(of: &app)
        try setLimits(of: &app)
        return app
    }

    private func setEndpoint(of app: inout AppConfiguration) throws {
        if simulated != nil {
            if let (_, place) = setting(flags.endpoint, "ENDPOINT") {
                throw invalid(
                    "\(place) says where to send to, and --simulate that nothing is sent to any device: leave one out")
            }
            app.endpoint = SimulatedCredentials.endpoint(usesGateway: app.usesGateway)
            return
        }
        if let (text, place) = setting(flags.endpoint, "ENDPOINT") {
            guard let endpoint = app.usesGateway ? APNSEndpoint(gateway: text) : APNSEndpoint(text) else {
                throw invalid("\(place) is \(text); it has to be production, sandbox or host:port")
            }
            app.endpoint = endpoint
        } else if app.usesGateway {
            app.endpoint = .productionGateway
        }
        if let ca = text(flags.ca, "CA") { app.trust = .file(ca) }
        app.proxy = try proxy(for: app.endpoint)
    }

    /// The proxy through which a server is reached.
    func proxy(for endpoint: APNSEndpoint) throws -> HTTPProxy? {
        do {
            if let url = text(flags.proxy, "PROXY") { return url == "none" ? nil : try HTTPProxy(url) }
            return try HTTPProxy.fromEnvironment(ProcessInfo.processInfo.environment, for: endpoint)
        } catch {
            throw invalid("\(error)")
        }
    }

    private func setTransport(of app: inout AppConfiguration) throws {
        guard let (text, place) = setting(flags.transport, "TRANSPORT") else { return }
        switch text {
        case "http2": return
        case "gateway": break
        default: throw invalid("\(place) is \(text); it has to be http2 or gateway")
        }
        guard case .certificate = app.credential else {
            throw invalid(
                "the binary gateway takes certificates only: give one (--certificate) instead of a signing key")
        }
        app.transport = .gateway(try gatewayOptions())
    }

    private func gatewayOptions() throws -> GatewayOptions {
        let flags = flags.gateway
        var options = GatewayOptions()
        if let (text, place) = setting(flags.gatewayFrame, "GATEWAY_FRAME") {
            guard let frame = GatewayFrame(rawValue: text) else {
                let known = GatewayFrame.allCases.map(\.rawValue).joined(separator: ", ")
                throw invalid("\(place) is \(text); it has to be one of \(known)")
            }
            options.frame = frame
        }
        options.batchBytes =
            try number(flags.gatewayBatchBytes, "GATEWAY_BATCH_BYTES", in: 1...1 << 20) ?? options.batchBytes
        options.batchTime =
            try number(flags.gatewayBatchTime, "GATEWAY_BATCH_TIME", in: 0...10_000) ?? options.batchTime
        options.confirmAfter =
            try number(flags.gatewayConfirmAfter, "GATEWAY_CONFIRM_AFTER", in: 0...600_000) ?? options.confirmAfter
        options.windowCount =
            try number(flags.gatewayWindow, "GATEWAY_WINDOW", in: 1...1_000_000) ?? options.windowCount
        options.windowBytes =
            try number(flags.gatewayWindowBytes, "GATEWAY_WINDOW_BYTES", in: 1...1 << 30) ?? options.windowBytes
        options.payloadLimit =
            try number(flags.gatewayPayloadLimit, "GATEWAY_PAYLOAD_LIMIT", in: 1...16_384) ?? options.payloadLimit
        if let (text, place) = setting(flags.gatewayBarrier, "GATEWAY_BARRIER") {
            guard let isOn = ["on": true, "off": false][text] else {
                throw invalid("\(place) is \(text); it has to be on or off")
            }
            options.sendsBarriers = isOn
        }
        return options
    }

    private func setLimits(of app: inout AppConfiguration) throws {
        app.maximumConnections =
            try number(flags.maxConnections, "MAX_CONNECTIONS", in: 1...100) ?? app.maximumConnections
        app.minimumConnections =
            try number(flags.minConnections, "MIN_CONNECTIONS", in: 0...100) ?? app.minimumConnections
        guard app.minimumConnections <= app.maximumConnections else {
            throw invalid("there are to be more connections at the least than at the most")
        }
        app.maximumStreams = try number(flags.maxStreams, "MAX_STREAMS", in: 1...10_000) ?? app.maximumStreams
        app.requestTimeout =
            try number(flags.requestTimeout, "REQUEST_TIMEOUT", in: 100...600_000) ?? app.requestTimeout
        app.idleTimeout = try number(flags.idleTimeout, "IDLE_TIMEOUT", in: 1...86_400) ?? app.idleTimeout
        app.maximumConnectionAge = try number(flags.maxConnectionAge, "MAX_CONNECTION_AGE", in: 10...604_800)
        app.maximumPerSecond = try number(flags.maxPerSecond, "MAX_PER_SECOND", in: 1...1_000_000)
        if let percent = try number(flags.maxBadTokens, "MAX_BAD_TOKENS", in: 1...100) {
            app.maximumBadTokenShare = Double(percent) / 100
        }
    }
}
