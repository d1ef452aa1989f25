import APNS

/// A device token that the simulator knows, as of `--device`: for which topic, in which environment, and what became of it.
package struct RegisteredDevice: Equatable, Sendable {
    /// The state of a registration.
    package enum State: String, CaseIterable, Sendable {
        case active
        /// The app was removed: 410 `Unregistered`.
        case unregistered
        /// The token was replaced: 410 `ExpiredToken`.
        case expired
    }

    /// The token.
    package var token: SimulatedToken
    /// The value of `apns-topic` that it is for.
    package var topic: String
    /// The environment that it is for.
    package var environment = APNSEnvironment.production
    /// The state.
    package var state = State.active
    /// When it became so, in milliseconds since 1970, which is the 410's `timestamp`; the time of the answer if nil.
    package var since: Int64?

    /// Reads `token=HEX,topic=com.example.app,environment=sandbox,state=unregistered,since=1700000000000`; the last three are
    /// optional.
    /// - Throws: ``RuleError`` naming the key.
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

    /// The device as it can be read again.
    package var text: String {
        "token=\(token.hex),topic=\(topic),environment=\(environment.rawValue),state=\(state.rawValue)"
            + (since.map { ",since=\($0)" } ?? "")
    }
}

/// A file of registered devices: one a line, as `--device` has it. Empty lines and lines that begin with # are skipped.
package enum DeviceFile {
    package static func devices(_ text: String) throws(RuleError) -> [RegisteredDevice] {
        var devices: [RegisteredDevice] = []
        for line in text.split(whereSeparator: \.isNewline) where !line.hasPrefix("#") {
            if line.allSatisfy({ $0 == " " || $0 == "\t" }) { continue }
            devices.append(try RegisteredDevice(String(line)))
        }
        return devices
    }
}

/// The device tokens that the simulator knows. One that it does not know is good for every topic, unless only known ones
/// are accepted.
struct DeviceRegistry: Sendable {
    private var registrations: [SimulatedToken: [RegisteredDevice]] = [:]

    init(_ devices: [RegisteredDevice] = []) {
        for device in devices { add(device) }
    }

    /// Every registration, ordered by token.
    var devices: [RegisteredDevice] {
        registrations.values.joined().sorted { ($0.token.hex, $0.topic) < ($1.token.hex, $1.topic) }
    }

    /// Adds a registration, or replaces that of the same token, topic and environment.
    mutating func add(_ device: RegisteredDevice) {
        var own = registrations[device.token] ?? []
        own.removeAll { $0.topic == device.topic && $0.environment == device.environment }
        registrations[device.token] = own + [device]
    }

    /// True if a token can be refused.
    func refusesAny(_ settings: SimulatorSettings) -> Bool { !registrations.isEmpty || settings.acceptsRegisteredOnly }

    /// Returns the reason to refuse a notification for a token, or nil if there is none.
    ///
    /// Source: Apple, "Handling notification responses from APNs". That a token of the other environment is a bad one is
    /// observed everywhere.
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

    /// Returns the effect of the registry on a notification at the binary gateway, or nil if there is none.
    ///
    /// Source: Apple, "Binary Provider API": status 8 for an invalid token; the feedback service lists the devices to which a
    /// notification could not be delivered because they do not have the app. So the gateway accepted it. That all others get
    /// status 8 is assumed.
    func gatewayEffect(
        on token: SimulatedToken, topic: String, _ settings: SimulatorSettings
    ) -> GatewayEffect? {
        guard let refusal = refusal(of: token, topic: topic, settings) else { return nil }
        return refusal.reason == APNSReason.unregistered.rawValue
            ? GatewayEffect(answer: .feedback, accepts: true, since: refusal.timestamp)
            : GatewayEffect(answer: .packet(.init(status: .invalidToken)), accepts: false)
    }
}
