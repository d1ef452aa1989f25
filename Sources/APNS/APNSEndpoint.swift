/// A host and port that speak APNs' HTTP/2 protocol.
public struct APNSEndpoint: Hashable, Sendable, CustomStringConvertible {
    /// A host name, or an IP address without brackets.
    public var host: String
    public var port: Int

    /// Apple's service for apps from the App Store, TestFlight and enterprise distribution.
    public static let production = APNSEndpoint(host: "api.push.apple.com", port: 443)
    /// Apple's service for apps that Xcode installed.
    public static let sandbox = APNSEndpoint(host: "api.sandbox.push.apple.com", port: 443)

    public init(host: String, port: Int) {
        self.host = host
        self.port = port
    }

    /// Reads `production` or `sandbox` in any case, `host`, `host:port` or `https://host:port`; `nil` for other text.
    public init?(_ text: String) {
        self.init(text, production: .production, sandbox: .sandbox, scheme: "https://")
    }

    /// Parses an address of one service.
    /// - Parameters:
    ///   - production: the endpoint that `production` names; its port is the default for hosts without one.
    ///   - sandbox: the endpoint that `sandbox` names.
    ///   - scheme: an optional prefix, after which a trailing slash is allowed; `nil` if the service has no URLs.
    public init?(_ text: String, production: APNSEndpoint, sandbox: APNSEndpoint, scheme: String? = nil) {
        switch text.lowercased() {
        case "production":
            self = production
            return
        case "sandbox", "development":
            self = sandbox
            return
        default: break
        }
        var rest = Substring(text)
        if let scheme {
            if rest.hasPrefix(scheme) { rest = rest.dropFirst(scheme.count) }
            if rest.hasSuffix("/") { rest = rest.dropLast() }
        }
        guard let (host, port) = Self.hostAndPort(rest) else { return nil }
        self.init(host: host, port: port ?? production.port)
    }

    /// Reads `host`, `host:port`, `[address]` or `[address]:port`; `nil` for anything else.
    static func hostAndPort(_ text: Substring) -> (host: String, port: Int?)? {
        var host = text
        var portText: Substring?
        let isBracketed = text.hasPrefix("[")
        if isBracketed, let end = text.firstIndex(of: "]") {
            host = text[text.index(after: text.startIndex)..<end]
            let rest = text[text.index(after: end)...]
            guard rest.isEmpty || rest.hasPrefix(":") else { return nil }
            if !rest.isEmpty { portText = rest.dropFirst() }
        } else if let colon = text.lastIndex(of: ":") {
            host = text[..<colon]
            portText = text[text.index(after: colon)...]
        }
        var port: Int?
        if let portText {
            // `Int` would accept a sign.
            guard portText.utf8.allSatisfy({ $0 &- 0x30 < 10 }), let number = Int(portText),
                (1...65535).contains(number)
            else { return nil }
            port = number
        }
        let isHostName = host.utf8.allSatisfy { byte in
            switch byte {
            case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "."), UInt8(ascii: "-"), UInt8(ascii: "_"):
                true
            // Without brackets, a colon would be ambiguous: it also separates the port.
            case UInt8(ascii: ":"): isBracketed
            default: false
            }
        }
        guard !host.isEmpty, isHostName else { return nil }
        return (String(host), port)
    }

    /// `production` or `sandbox` for Apple's hosts, on any port; host and port for other servers.
    public var environment: String {
        APNSEnvironment(host: host)?.rawValue ?? description
    }

    /// The value of `:authority`.
    public var authority: String {
        let name = host.contains(":") ? "[\(host)]" : host
        return port == 443 ? name : "\(name):\(port)"
    }

    public var description: String { host.contains(":") ? "[\(host)]:\(port)" : "\(host):\(port)" }
}

/// Apple's two services. A device token is known to only one of them, and an old certificate is valid for only one of them.
public enum APNSEnvironment: String, Sendable, Hashable, CaseIterable {
    /// For apps that Xcode installed.
    case sandbox
    /// For apps from the App Store, TestFlight and enterprise distribution.
    case production

    /// The environment of one of Apple's hosts, including hosts that Apple has shut down; nil for any other host.
    public init?(host: String) {
        let name = host.lowercased()
        switch name.hasSuffix(".") ? String(name.dropLast()) : name {
        case "api.push.apple.com", "gateway.push.apple.com", "feedback.push.apple.com": self = .production
        case "api.sandbox.push.apple.com", "api.development.push.apple.com", "gateway.sandbox.push.apple.com",
            "feedback.sandbox.push.apple.com":
            self = .sandbox
        default: return nil
        }
    }
}

/// Addresses of channel management. Broadcasts themselves are sent to the same endpoint as other notifications.
///
/// Source: Apple, "Sending channel management requests to APNs", "Establish a connection to APNs".
extension APNSEndpoint {
    public static let productionChannels = APNSEndpoint(host: "api-manage-broadcast.push.apple.com", port: 2196)
    public static let sandboxChannels = APNSEndpoint(host: "api-manage-broadcast.sandbox.push.apple.com", port: 2195)

    /// Parses the address of a server that manages channels. A host without a port has Apple's port.
    public init?(channelManagement text: String) {
        self.init(text, production: .productionChannels, sandbox: .sandboxChannels, scheme: "https://")
    }

    /// The endpoint that manages the broadcast channels of this endpoint. For servers other than Apple's, it is this endpoint itself.
    public var channelManagement: APNSEndpoint {
        switch APNSEnvironment(host: host) {
        case .production: .productionChannels
        case .sandbox: .sandboxChannels
        case nil: self
        }
    }
}
