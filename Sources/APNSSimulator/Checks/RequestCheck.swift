import APNS

/// APNs' checks of a request, in its order.
///
/// Source for the checks and their reasons: Apple, "Sending notification requests to APNs" and "Handling notification
/// responses from APNs". Apple does not document the order; it is assumed, as is everything marked so.
enum RequestCheck {
    /// Checks a request to deliver a notification to a device.
    /// - Parameters:
    ///   - credentials: the client's.
    ///   - isObject: returns true if the body is a JSON object; called only if everything before it is correct.
    static func token(
        of request: borrowing PushRequest, _ credentials: ClientCredentials, isObject: () -> Bool
    ) throws(Refusal) -> SimulatedToken {
        guard request.method == .post else { throw Refusal(.methodNotAllowed) }
        switch request.path {
        case .other, .broadcast, .channels, .allChannels: throw Refusal(.badPath)
        case .withoutToken: throw Refusal(.missingDeviceToken)
        case .device: break
        }
        if request.hasDuplicates { throw Refusal(.duplicateHeaders) }
        try authorize(request, credentials)
        let reason =
            headers(request) ?? topic(request, hasCertificate: credentials.certificate != nil)
            ?? payload(request, isObject: isObject)
        if let reason { throw Refusal(reason) }
        guard let token = request.token else { throw Refusal(.badDeviceToken) }
        return token
    }

    /// Checks the credentials of a request's client.
    static func authorize(_ request: borrowing PushRequest, _ credentials: ClientCredentials) throws(Refusal) {
        guard credentials.certificate == nil else {
            if credentials.isOfOtherEnvironment { throw Refusal(.badCertificateEnvironment) }
            return
        }
        switch request.authorization {
        case .value(.success): break
        case .value(.failure(let refusal)): throw refusal
        case .absent, .bad: throw Refusal(.missingProviderToken)
        }
    }

    private static func headers(_ request: borrowing PushRequest) -> APNSReason? {
        if case .bad = request.id { return .badMessageID }
        if case .bad = request.expiration { return .badExpirationDate }
        if let reason = priorityAndType(request) { return reason }
        return if case .bad = request.collapseID { .badCollapseID } else { nil }
    }

    // A missing type counts as `alert` (assumed; Apple requires the header for watchOS 6 and later).
    private static func priorityAndType(_ request: borrowing PushRequest) -> APNSReason? {
        if case .bad = request.priority { return .badPriority }
        switch request.pushType {
        case .bad: return .invalidPushType
        // Apple: "Always use priority 5. Using priority 10 is an error." Without a priority it passes (assumed).
        case .value(.background) where request.priority.value == 10: return .badPriority
        case .absent, .value: return nil
        }
    }

    private static func topic(_ request: borrowing PushRequest, hasCertificate: Bool) -> APNSReason? {
        guard case .value(let topic) = request.topic else {
            // A certificate replaces the header, but only for the certificate's own topic.
            guard hasCertificate else { return .missingTopic }
            if case .value(let type) = request.pushType, !type.topicSuffix.isEmpty { return .missingTopic }
            return nil
        }
        guard topic.isWellFormed else { return .badTopic }
        // Assumed: a wrong suffix is BadTopic, not TopicDisallowed.
        if case .value(let type) = request.pushType, !topic.ends(for: type) { return .badTopic }
        guard topic.isListed, !hasCertificate || topic.isOfCertificate else { return .topicDisallowed }
        // Apple: location supports only token-based authentication. The reason is assumed.
        if hasCertificate, case .value(.location) = request.pushType { return .topicDisallowed }
        // Assumed: a topic that the key is not for is TopicDisallowed.
        if case .value(.success(let grant)) = request.authorization, !topic.isFor(grant) { return .topicDisallowed }
        return nil
    }

    // Assumed: a payload that is not a JSON object counts as empty; Apple has no separate reason.
    private static func payload(_ request: borrowing PushRequest, isObject: () -> Bool) -> APNSReason? {
        guard request.bodyLength > 0 else { return .payloadEmpty }
        var limit = PushType.alert.maximumPayloadSize
        if case .value(let type) = request.pushType { limit = type.maximumPayloadSize }
        guard request.bodyLength <= limit else { return .payloadTooLarge }
        return isObject() ? nil : .payloadEmpty
    }
}
