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
        switch self {
        case .production: .productionChannels
        case .sandbox: .sandboxChannels
        default: self
        }
    }
}
