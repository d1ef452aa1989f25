import APNS
import LegacyAPNS
import TLS

/// The gateway's checks of a well-formed notification, in its order.
///
/// Source for the statuses: Apple, "Binary Provider API". Apple does not document the order of the checks, so the order is assumed.
struct GatewayCheck {
    enum Verdict {
        case refused(GatewayStatus)
        /// - Parameter id: the text of the payload's member that identifies the notification.
        case good(SimulatedToken, id: UnsafeBufferPointer<UInt8>?)
    }

    /// The limit in bytes: 2048, or 256 as before iOS 8.
    var maximumPayloadSize = 2048
    /// The payload's member that identifies a notification.
    var idMember: [UInt8]?
    /// True if the client's certificate names a topic.
    var hasTopic = true

    func judge(_ notification: GatewayNotification) -> Verdict {
        guard let token = notification.token, !token.isEmpty else { return .refused(.missingDeviceToken) }
        guard GatewayFrame.tokenSizes.contains(token.count) else { return .refused(.invalidTokenSize) }
        guard hasTopic else { return .refused(.missingTopic) }
        guard let payload = notification.payload, !payload.isEmpty else { return .refused(.missingPayload) }
        guard payload.count <= maximumPayloadSize else { return .refused(.invalidPayloadSize) }
        // Assumed: a payload that is not a JSON object, or has no `aps`, is a processing error. No other status fits.
        guard let members = JSONObjectCheck.members(of: payload, seeking: idMember), members.hasAPS else {
            return .refused(.processingError)
        }
        // "It is an error to use this priority for a push that contains only the content-available key." The status is
        // assumed.
        guard notification.priority != 10 || !members.hasContentAvailableOnly else { return .refused(.processingError) }
        let known = SimulatedToken(bytes: token)
        // Assumed: clients send an all-zero token to get status 8, because no device has this token. For other tokens, the registered
        // devices and the rules decide.
        guard known.words != (0, 0, 0, 0) || !known.tail.allSatisfy({ $0 == 0 }) else { return .refused(.invalidToken) }
        return .good(known, id: members.sought)
    }
}

/// The verdict on a client of the gateway or the feedback service, by its certificate.
enum GatewayClient: Equatable {
    /// The client is accepted. The topic is nil if its certificate has no topic.
    case taken(topic: String?)
    case refused

    /// - Parameter configuration: without authorities, any certificate is accepted; without topics, any topic.
    init(_ handshake: TLSHandshakeCompleted?, _ configuration: SimulatorConfiguration) {
        guard let certificate = handshake?.peerCertificate,
            certificate.refusal == nil || configuration.clientTrust == nil
        else {
            self = .refused
            return
        }
        self.init(
            userID: certificate.userID, commonName: certificate.commonName, topics: configuration.topics)
    }

    // Apple's certificates have the topic as the user ID. They also have it in the common name after the kind of certificate, such as
    // "Apple Development IOS Push Services: com.example.app".
    init(userID: String?, commonName: String?, topics: [String]) {
        var topic = userID
        if topic == nil, let commonName, let colon = commonName.lastIndex(of: ":") {
            topic = String(commonName[colon...].dropFirst().drop { $0 == " " })
        }
        if topic?.isEmpty == true { topic = nil }
        // A certificate of an unknown app is treated like a missing certificate (assumed). An app's certificate can name the bundle
        // identifier with a suffix, for example for VoIP.
        let isKnown = topics.isEmpty || topics.contains { topic == $0 || topic?.hasPrefix($0 + ".") == true }
        if topic != nil, !isKnown {
            self = .refused
        } else {
            self = .taken(topic: topic)
        }
    }
}
