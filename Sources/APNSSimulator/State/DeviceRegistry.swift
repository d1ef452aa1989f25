import APNS

/// A registration of a device token: its topic, environment and state. Written as in `--device`.
package struct RegisteredDevice: Equatable, Sendable {
    package enum State: String, CaseIterable, Sendable {
        case active
        /// The app was removed: 410 `Unregistered`.
        case unregistered
        /// The token was replaced: 410 `ExpiredToken`.
        case expired
    }

    package var token: SimulatedToken
    /// The value of `apns-topic` that the token is registered for.
    package var topic: String
    package var environment = APNSEnvironment.production
    package var state = State.active
    /// The `timestamp` of the 410, in milliseconds since 1970: the time of the change to this state. nil for the time of the answer.
    package var since: Int64?

    /// Reads `token=HEX,topic=com.example.app,environment=sandbox,state=unregistered,since=1700000000000`. The last three are optional.
    /// - Throws: ``RuleError`` that names the key.
    package init(_ text: String) throws(RuleError) {
        var reader = try RuleReader(text, kind: "device")
        guard
            let token = try reader.take(
                "token", "must be 64 to \(SimulatedToken.maximumDigits) hex digits, an even number of them",
                { SimulatedToken(hex: $0) })
        else { throw reader.error("token", "is missing") }
        guard let topic = try reader.take("topic", "must be a topic", { $0.isEmpty ? nil : $0 }) else {
            throw reader.error("topic", "is missing")
        }
        self.token = token
        self.topic = topic
        environment =
            try reader.take("environment", "must be production or sandbox") { APNSEnvironment(rawValue: $0) }
            ?? .production
        state =
            try reader.take("state", "must be active, unregistered or expired") { State(rawValue: $0) } ?? .active
        if state != .active {
            since = try reader.take("since", "must be milliseconds since 1970") { Int64($0) }
        }
        try reader.finish()
    }

    /// Reads a file of devices, one per line. Empty lines and lines that begin with # are skipped.
    package static func all(inFile text: String) throws(RuleError) -> [RegisteredDevice] {
        var devices: [RegisteredDevice] = []
        for line in text.split(whereSeparator: \.isNewline) where !line.hasPrefix("#") {
            if line.allSatisfy({ $0 == " " || $0 == "\t" }) { continue }
            devices.append(try RegisteredDevice(String(line)))
        }
        return devices
    }

    /// The device in the form that `init(_:)` reads.
    package var text: String {
        "token=\(token.hex),topic=\(topic),environment=\(environment.rawValue),state=\(state.rawValue)"
            + (since.map { ",since=\($0)" } ?? "")
    }
}

/// The registered device tokens. Other tokens are valid for every topic, unless the settings accept registered ones only.
struct DeviceRegistry: Sendable {
    private var registrations: [SimulatedToken: [RegisteredDevice]] = [:]

    init(_ devices: [RegisteredDevice] = []) { add(devices) }

    /// Every registration, ordered by token.
    var devices: [RegisteredDevice] {
        registrations.values.joined().sorted { ($0.token.hex, $0.topic) < ($1.token.hex, $1.topic) }
    }

    /// Adds registrations. A registration replaces an earlier registration of its token, topic and environment.
    mutating func add(_ devices: [RegisteredDevice]) {
        for device in devices {
            var own = registrations[device.token] ?? []
            own.removeAll { $0.topic == device.topic && $0.environment == device.environment }
            registrations[device.token] = own + [device]
        }
    }

    /// Returns false if no token is refused.
    func refusesAny(_ settings: SimulatorSettings) -> Bool { !registrations.isEmpty || settings.acceptsRegisteredOnly }

    /// Returns the refusal of a notification for a token, or nil.
    ///
    /// Source: Apple, "Handling notification responses from APNs". Observed: a token of the other environment is a bad token.
    func refusal(of token: SimulatedToken, topic: String, _ settings: SimulatorSettings) -> Refusal? {
        guard refusesAny(settings) else { return nil }
        guard let all = registrations[token] else {
            return settings.acceptsRegisteredOnly ? Refusal(.badDeviceToken) : nil
        }
        let here = all.filter { $0.environment == settings.environment }
        guard !here.isEmpty else { return Refusal(.badDeviceToken) }
        guard let device = here.first(where: { $0.topic == topic }) else { return Refusal(.deviceTokenNotForTopic) }
        return switch device.state {
        case .active: nil
        case .unregistered: Refusal(.unregistered, timestamp: device.since)
        case .expired: Refusal(.expiredToken, timestamp: device.since)
        }
    }

    /// Returns the effect of the registry on a notification at the binary gateway, or nil.
    ///
    /// Source: Apple, "Binary Provider API": status 8 for an invalid token. The feedback service lists a device without the app after a
    /// notification to it. So the gateway accepts notifications to such devices. Assumed: all other refusals are status 8.
    func gatewayEffect(
        on token: SimulatedToken, topic: String, _ settings: SimulatorSettings
    ) -> GatewayEffect? {
        guard let refusal = refusal(of: token, topic: topic, settings) else { return nil }
        return refusal.reason == APNSReason.unregistered.rawValue
            ? GatewayEffect(answer: .feedback, accepts: true, since: refusal.timestamp)
            : GatewayEffect(answer: .packet(.init(status: .invalidToken)), accepts: false)
    }
}
