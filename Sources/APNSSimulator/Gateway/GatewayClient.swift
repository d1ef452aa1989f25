import TLS

/// Whether a client of the gateway or the feedback service is taken, by its certificate.
enum GatewayClient: Equatable {
    /// With the app that the certificate is for, unless it does not say.
    case taken(topic: String?)
    case refused

    /// - Parameter configuration: without authorities, any certificate will do; without topics, any topic.
    init(_ certificate: TLSPeerCertificate?, _ configuration: SimulatorConfiguration) {
        guard let certificate, certificate.refusal == nil || configuration.clientTrust == nil else {
            self = .refused
            return
        }
        self.init(
            userID: certificate.userID, commonName: certificate.commonName, topics: configuration.topics)
    }

    // Apple's certificates carry the topic as the user ID, and in the common name after the kind of certificate, such
    // as "Apple Development IOS Push Services: com.example.app".
    init(userID: String?, commonName: String?, topics: [String]) {
        var topic = userID
        if topic == nil, let commonName, let colon = commonName.lastIndex(of: ":") {
            topic = String(commonName[colon...].dropFirst().drop { $0 == " " })
        }
        if topic?.isEmpty == true { topic = nil }
        // One of an app that is not known here is as good as none (assumed). An app's VoIP certificate, for example, is
        // for its bundle identifier with an ending.
        let isKnown = topics.isEmpty || topics.contains { topic == $0 || topic?.hasPrefix($0 + ".") == true }
        if topic != nil, !isKnown {
            self = .refused
        } else {
            self = .taken(topic: topic)
        }
    }
}
