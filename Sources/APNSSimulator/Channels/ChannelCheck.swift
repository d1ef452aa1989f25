import APNS

/// APNs' checks of broadcasts and of requests that manage channels, in its order.
///
/// Source for the checks and their reasons: Apple, "Sending broadcast push notification requests to APNs", "Sending
/// channel management requests to APNs" and "Handling error responses from Apple Push Notification service". The order
/// is assumed, as is everything marked so.
enum ChannelCheck {
    /// Performs the checks that are common to all requests whose path names an app.
    /// - Parameters:
    ///   - topic: the facts about the path's bundle identifier.
    ///   - credentials: the client's.
    ///   - hasFeature: true if the app has the broadcast capability.
    static func refusal(
        _ request: borrowing PushRequest, topic: TopicFacts, _ credentials: ClientCredentials, hasFeature: Bool
    ) -> Refusal? {
        if let reason = form(request, topic: topic) { return Refusal(reason) }
        if let refusal = RequestCheck.refusal(of: credentials, request) { return refusal }
        if let reason = self.topic(request, topic, hasCertificate: credentials.certificate != nil) {
            return Refusal(reason)
        }
        if !hasFeature, request.method == .post || request.path == .allChannels { return .broadcastFeatureNotEnabled }
        if case .bad = request.id { return Refusal(.badMessageID) }
        return nil
    }

    private static func form(_ request: borrowing PushRequest, topic: TopicFacts) -> APNSReason? {
        switch (request.path, request.method) {
        case (.broadcast, .post), (.channels, .post), (.channels, .get), (.channels, .delete), (.allChannels, .get):
            break
        default: return .methodNotAllowed
        }
        guard topic.isWellFormed else { return .badPath }
        return request.hasDuplicates ? .duplicateHeaders : nil
    }

    private static func topic(
        _ request: borrowing PushRequest, _ topic: TopicFacts, hasCertificate: Bool
    ) -> APNSReason? {
        // "Ensure that no push type suffix is added to the bundle ID."
        if topic.ends(for: .liveactivity) { return .topicDisallowed }
        guard topic.isListed, !hasCertificate || topic.isOfCertificate else { return .topicMismatch }
        if case .success(let grant) = request.authorization, !topic.isFor(grant) { return .topicMismatch }
        return nil
    }

    /// Checks a broadcast's headers.
    ///
    /// Observed: a channel that never existed answers `BadChannelId`, a deleted one `ChannelNotRegistered`.
    /// - Parameter standing: returns the state of the named channel.
    static func broadcastRefusal(
        _ request: borrowing PushRequest, standing: (_ channelID: [UInt8]) -> ChannelRegistry.Standing,
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
        switch standing(channelID) {
        case .unknown: return .badChannelID
        case .deleted: return .channelNotRegistered
        // "For channels with a No Messages Stored storage policy, you can only specify a 0 expiration value."
        case .present(.none) where expiration != 0: return .badExpirationDate
        case .present: break
        }
        guard request.bodyLength > 0 else { return .payloadEmpty }
        guard request.bodyLength <= PushType.maximumBroadcastSize else { return .payloadTooLarge }
        return isObject() ? nil : .badRequestPayload
    }

    /// Returns the channel that a request names.
    static func channelID(_ request: borrowing PushRequest) throws(Refusal) -> [UInt8] {
        switch request.channelID {
        case .absent: throw Refusal(.missingChannelID)
        case .bad: throw Refusal(.badChannelID)
        case .value(let id): return id
        }
    }
}
