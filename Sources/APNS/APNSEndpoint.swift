/// A host and port that speak APNs' HTTP/2 protocol.
public struct APNSEndpoint: Hashable, Sendable, CustomStringConvertible {
    /// A host name or an IP address, without brackets.
    public var host: String
    /// A TCP port.
    public var port: Int

    /// Apple's service for apps from the App Store, TestFlight and enterprise distribution.
    public static let production = APNSEndpoint(host: "api.push.apple.com", port: 443)
    /// Apple's service for apps that Xcode installed.
    public static let sandbox = APNSEndpoint(host: "api.sandbox.push.apple.com", port: 443)

    /// Apple's binary gateway, as it was, for production.
    public static let productionGateway = APNSEndpoint(host: "gateway.push.apple.com", port: 2195)
    /// Apple's binary gateway, as it was, for the sandbox.
    public static let sandboxGateway = APNSEndpoint(host: "gateway.sandbox.push.apple.com", port: 2195)

    /// Takes a host and a port as they are.
    public init(host: String, port: Int) {
        self.host = host
        self.port = port
    }

    /// Reads `production` or `sandbox` in any case, `host`, `host:port` or `https://host:port`; `nil` for anything else.
    public init?(_ text: String) {
        self.init(text, production: .production, sandbox: .sandbox, scheme: "https://")
    }

    /// Reads `production`, `sandbox`, `host` or `host:port` of a binary gateway; `nil` for anything else.
    public init?(gateway text: String) {
        self.init(text, production: .productionGateway, sandbox: .sandboxGateway)
    }

    /// - Parameters:
    ///   - production: what `production` is, and whose port is that of hosts without one.
    ///   - sandbox: what `sandbox` is.
    ///   - scheme: what may stand before the host, with a slash behind the port; nothing where the service has no URLs.
    init?(_ text: String, production: APNSEndpoint, sandbox: APNSEndpoint, scheme: String? = nil) {
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
            // Int would take a sign.
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
            // Only brackets tell an IPv6 address's colons from the port's.
            case UInt8(ascii: ":"): isBracketed
            default: false
            }
        }
        guard !host.isEmpty, isHostName else { return nil }
        return (String(host), port)
    }

    /// Apple's name for it, `production` or `sandbox`, on whichever port; for another server, host and port.
    public var environment: String {
        APNSEnvironment(host: host)?.rawValue ?? description
    }

    /// The value of `:authority`.
    public var authority: String {
        let name = host.contains(":") ? "[\(host)]" : host
        return port == 443 ? name : "\(name):\(port)"
    }

    /// Host and port.
    public var description: String { host.contains(":") ? "[\(host)]:\(port)" : "\(host):\(port)" }
}

/// The two services Apple runs: they know different device tokens, and old certificates are for one of them only.
public enum APNSEnvironment: String, Sendable, Hashable, CaseIterable {
    /// For apps that Xcode installed.
    case sandbox
    /// For apps from the App Store, TestFlight and enterprise distribution.
    case production

    /// The environment behind one of Apple's hosts, for HTTP/2, the gateway or the feedback service; nil for any other.
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

/// Where the feedback service is.
///
/// Source: Apple, "Local and Remote Notification Programming Guide" (archived), "The Feedback Service". Apple has shut it down;
/// private gateways and appliances still have one.
extension APNSEndpoint {
    /// The port that feedback services listen on.
    public static let feedbackPort = 2196
    /// For apps from the App Store, TestFlight and enterprise distribution.
    public static let productionFeedback = APNSEndpoint(host: "feedback.push.apple.com", port: feedbackPort)
    /// For apps that Xcode installed.
    public static let sandboxFeedback = APNSEndpoint(host: "feedback.sandbox.push.apple.com", port: feedbackPort)

    /// The feedback service of those who send here; for a server that is not Apple's, the same host.
    public var feedback: APNSEndpoint {
        switch APNSEnvironment(host: host) {
        case .production: .productionFeedback
        case .sandbox: .sandboxFeedback
        case nil: APNSEndpoint(host: host, port: Self.feedbackPort)
        }
    }

    /// Reads `production`, `sandbox`, `host` or `host:port`; `nil` for anything else.
    public init?(feedback text: String) {
        self.init(text, production: .productionFeedback, sandbox: .sandboxFeedback)
    }
}

/// Where channels are managed. Broadcasts themselves go where all notifications go.
///
/// Source: Apple, "Sending channel management requests to APNs", "Establish a connection to APNs".
extension APNSEndpoint {
    /// For the channels of ``production``.
    public static let productionChannels = APNSEndpoint(host: "api-manage-broadcast.push.apple.com", port: 2196)
    /// For the channels of ``sandbox``.
    public static let sandboxChannels = APNSEndpoint(host: "api-manage-broadcast.sandbox.push.apple.com", port: 2195)

    /// Where the channels are managed on which is broadcast here; for a server that is not Apple's, the same place.
    public var channelManagement: APNSEndpoint {
        switch APNSEnvironment(host: host) {
        case .production: .productionChannels
        case .sandbox: .sandboxChannels
        case nil: self
        }
    }
}
