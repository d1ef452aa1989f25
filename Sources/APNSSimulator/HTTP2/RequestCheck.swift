import APNS
import PushJob

/// APNs' checks of a request, in its order.
///
/// Source for the checks and their reasons: Apple, "Sending notification requests to APNs" and "Handling notification responses from APNs".
/// Apple does not document the order of the checks, so the order is assumed.
enum RequestCheck {
    /// Checks a request to deliver a notification to a device.
    /// - Parameter isObject: returns true if the body is a JSON object. Called last, because it is expensive.
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
        try checkHeaders(request)
        if let reason = topic(request, hasCertificate: credentials.certificate != nil) { throw Refusal(reason) }
        if let reason = payload(request, isObject: isObject) { throw Refusal(reason) }
        guard let token = request.token else { throw Refusal(.badDeviceToken) }
        return token
    }

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

    private static func checkHeaders(_ request: borrowing PushRequest) throws(Refusal) {
        if case .bad = request.id { throw Refusal(.badMessageID) }
        if case .bad = request.expiration { throw Refusal(.badExpirationDate) }
        if case .bad = request.priority { throw Refusal(.badPriority) }
        // A missing type counts as `alert` (assumed; Apple requires the header for watchOS 6 and later).
        if case .bad = request.pushType { throw Refusal(.invalidPushType) }
        // Without a priority the request passes (assumed). APNs was observed to accept any priority for Wallet passes, and orders are sent
        // like passes.
        if let refused = request.pushType.value?.row.refusedPriority, request.priority.value == Int(refused),
            request.topic.value?.isOfWallet != true
        {
            throw Refusal(.badPriority)
        }
        if case .bad = request.collapseID { throw Refusal(.badCollapseID) }
    }

    private static func topic(_ request: borrowing PushRequest, hasCertificate: Bool) -> APNSReason? {
        guard case .value(let topic) = request.topic else {
            // Without the header, the topic is the certificate's own topic.
            guard hasCertificate else { return .missingTopic }
            return request.pushType.value?.hasTopicSuffix ?? false ? .missingTopic : nil
        }
        guard topic.isWellFormed else { return .badTopic }
        // Assumed: a wrong suffix is BadTopic, not TopicDisallowed.
        if let type = request.pushType.value, !type.ends(topic.name) { return .badTopic }
        guard topic.isListed, !hasCertificate || topic.isOfCertificate else { return .topicDisallowed }
        // Assumed: if the push type needs a provider token, the reason is TopicDisallowed.
        if hasCertificate, request.pushType.value?.row.needsKey == true { return .topicDisallowed }
        // Assumed: if the key is not for the topic, the reason is TopicDisallowed.
        if case .value(.success(let grant)) = request.authorization, !topic.isFor(grant) { return .topicDisallowed }
        return nil
    }

    // Assumed: a payload that is not a JSON object counts as empty; Apple has no separate reason.
    private static func payload(_ request: borrowing PushRequest, isObject: () -> Bool) -> APNSReason? {
        guard request.bodyLength > 0 else { return .payloadEmpty }
        let type = request.pushType.value ?? .alert
        guard request.bodyLength <= type.row.maximumPayloadSize else { return .payloadTooLarge }
        return isObject() ? nil : .payloadEmpty
    }
}
