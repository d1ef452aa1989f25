import APNS

/// What APNs checks of a request, in its order.
///
/// Source for what is checked and which reason answers: Apple, "Sending notification requests to APNs" and "Handling
/// notification responses from APNs". Apple does not document the order; it is assumed, as are the points marked so.
enum RequestCheck {
    /// Source: Apple, "Sending notification requests to APNs", `apns-collapse-id`; in bytes.
    static let maximumCollapseIDLength = 64

    /// The reason to refuse the request, or nil when there is none.
    /// - Parameters:
    ///   - hasCertificate: whether the client showed a certificate that carries a topic.
    ///   - now: seconds since 1970.
    ///   - isObject: whether the body is a JSON object; asked only when everything before was right.
    static func refusal(
        _ request: borrowing PushRequest, hasCertificate: Bool, now: Int64, isObject: () -> Bool
    ) -> APNSReason? {
        guard request.method == .post else { return .methodNotAllowed }
        switch request.path {
        case .other, .broadcast, .channels, .allChannels: return .badPath
        case .withoutToken: return .missingDeviceToken
        case .device: break
        }
        if request.hasDuplicates { return .duplicateHeaders }
        if let reason = credentials(request, hasCertificate: hasCertificate, now: now) { return reason }
        if case .bad = request.id { return .badMessageID }
        if case .bad = request.expiration { return .badExpirationDate }
        if let reason = priorityAndType(request) { return reason }
        if request.hasBadCollapseID { return .badCollapseID }
        if let reason = topic(request, hasCertificate: hasCertificate) { return reason }
        if let reason = payload(request, isObject: isObject) { return reason }
        if request.token == nil { return .badDeviceToken }
        return nil
    }

    /// Whether a reason speaks of the provider token, after which APNs allows one stream only.
    static func isAboutProviderToken(_ reason: APNSReason) -> Bool {
        switch reason {
        case .missingProviderToken, .invalidProviderToken, .expiredProviderToken, .tooManyProviderTokenUpdates: true
        default: false
        }
    }

    // A token wins over a certificate (assumed): it is the more particular of the two.
    static func credentials(
        _ request: borrowing PushRequest, hasCertificate: Bool, now: Int64
    ) -> APNSReason? {
        switch request.authorization {
        case .genuine(let issuedAt, _):
            ProviderTokens.isExpired(issuedAt: issuedAt, now: now) ? .expiredProviderToken : nil
        case .refused(let reason): reason
        case nil: hasCertificate ? nil : .missingProviderToken
        }
    }

    // Without a type, `alert` is taken for it (assumed; Apple says the header is required for watchOS 6 and later).
    private static func priorityAndType(_ request: borrowing PushRequest) -> APNSReason? {
        if request.priority == .bad { return .badPriority }
        switch request.pushType {
        case .bad: return .invalidPushType
        // Apple: "Always use priority 5. Using priority 10 is an error." Without a priority it passes (assumed).
        case .value(.background) where request.priority == .value(10): return .badPriority
        case .absent, .value: return nil
        }
    }

    private static func topic(_ request: borrowing PushRequest, hasCertificate: Bool) -> APNSReason? {
        let isByCertificate = request.authorization == nil && hasCertificate
        guard let topic = request.topic else {
            // A certificate for one topic stands in for the header, but only for what goes to that very topic.
            guard isByCertificate else { return .missingTopic }
            if case .value(let type) = request.pushType, !type.topicSuffix.isEmpty { return .missingTopic }
            return nil
        }
        guard topic.isWellFormed else { return .badTopic }
        // That the wrong ending is BadTopic, and not TopicDisallowed, is assumed.
        if case .value(let type) = request.pushType, !topic.ends(for: type) { return .badTopic }
        guard topic.isListed, !isByCertificate || topic.isOfCertificate else { return .topicDisallowed }
        return nil
    }

    // That a payload which is no JSON object counts as none is assumed; Apple has no reason of its own for it.
    private static func payload(_ request: borrowing PushRequest, isObject: () -> Bool) -> APNSReason? {
        guard request.bodyLength > 0 else { return .payloadEmpty }
        var limit = PushType.alert.maximumPayloadSize
        if case .value(let type) = request.pushType { limit = type.maximumPayloadSize }
        guard request.bodyLength <= limit else { return .payloadTooLarge }
        return isObject() ? nil : .payloadEmpty
    }
}
