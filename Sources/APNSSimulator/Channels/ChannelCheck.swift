import APNS

/// What APNs checks of broadcasts and of requests that manage channels, in its order.
///
/// Source for what is checked and which reason answers: Apple, "Sending broadcast push notification requests to APNs",
/// "Sending channel management requests to APNs" and "Handling error responses from Apple Push Notification service". The
/// order is assumed, as are the points marked so.
enum ChannelCheck {
    /// What is the same for all requests that name an app in their path.
    /// - Parameters:
    ///   - topic: what is known of the path's bundle identifier.
    ///   - now: seconds since 1970.
    static func refusal(
        _ request: borrowing PushRequest, topic: TopicFacts, hasCertificate: Bool, now: Int64
    ) -> APNSReason? {
        switch (request.path, request.method) {
        case (.broadcast, .post), (.channels, .post), (.channels, .get), (.channels, .delete), (.allChannels, .get):
            break
        default: return .methodNotAllowed
        }
        guard topic.isWellFormed else { return .badPath }
        if request.hasDuplicates { return .duplicateHeaders }
        if let reason = RequestCheck.credentials(request, hasCertificate: hasCertificate, now: now) { return reason }
        // "Ensure that no push type suffix is added to the bundle ID."
        if topic.ends(for: .liveactivity) { return .topicDisallowed }
        let isByCertificate = request.authorization == nil && hasCertificate
        guard topic.isListed, !isByCertificate || topic.isOfCertificate else { return .topicMismatch }
        if case .bad = request.id { return .badMessageID }
        return nil
    }

    /// What a broadcast's headers have to be.
    /// - Parameter policy: that of the channel that is named; `nil` if there is none.
    static func broadcastRefusal(
        _ request: borrowing PushRequest, policy: (_ channelID: [UInt8]) -> ChannelRegistry.Policy?,
        isObject: () -> Bool
    ) -> APNSReason? {
        var channelID: [UInt8] = []
        switch request.channelID {
        case .absent: return .missingChannelID
        case .bad: return .badChannelID
        case .value(let id): channelID = id
        }
        switch request.pushType {
        case .absent: return .missingPushType
        case .value(.liveactivity): break
        case .bad, .value: return .invalidPushType
        }
        guard case .value(let expiration) = request.expiration else { return .badExpirationDate }
        guard case .value = request.priority else { return .badPriority }
        guard let policy = policy(channelID) else { return .channelNotRegistered }
        // "For channels with a No Messages Stored storage policy, you can only specify a 0 expiration value."
        if policy == .none, expiration != 0 { return .badExpirationDate }
        guard request.bodyLength > 0 else { return .payloadEmpty }
        guard request.bodyLength <= PushType.maximumBroadcastSize else { return .payloadTooLarge }
        return isObject() ? nil : .badRequestPayload
    }

    /// The channel that a request is about.
    static func channelID(_ request: borrowing PushRequest) throws(Refusal) -> [UInt8] {
        switch request.channelID {
        case .absent: throw Refusal(reason: .missingChannelID)
        case .bad: throw Refusal(reason: .badChannelID)
        case .value(let id): return id
        }
    }

    struct Refusal: Error {
        var reason: APNSReason
    }
}
