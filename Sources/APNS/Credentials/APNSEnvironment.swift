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
