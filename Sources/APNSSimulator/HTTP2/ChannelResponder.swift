import APNS
import FoundationEssentials
import PushJob

/// Handles broadcasts, and requests that manage their channels. Performs APNs' checks in its order, and makes the answers.
///
/// Source for the checks, their reasons, and the statuses and bodies of answers: Apple, "Sending broadcast push notification requests to
/// APNs", "Sending channel management requests to APNs" and "Handling error responses from Apple Push Notification service". Apple does not
/// document the order of the checks, so the order is assumed.
struct ChannelResponder {
    let service: SimulatedService
    let credentials: ClientCredentials
    /// The number of the connection, from 1.
    let connection: Int

    /// Decides on a request and carries it out.
    /// - Parameter ordinal: the number of the request on its connection, from 1.
    /// - Returns: the decision; and the answer to a request that manages channels, if it was carried out. A rule may give another answer.
    func decide(
        _ slot: StreamSlot, id: APNSID, ordinal: Int
    ) throws(Refusal) -> (effect: PushEffect, answer: PreparedAnswer?) {
        try check(slot.request)
        guard slot.request.path == .broadcast else {
            let app = EventTarget.app(slot.request.bundleID)
            let effect = service.judge(app, id: id, ordinal: ordinal, connection: connection)
            return (effect, effect.accepts ? try manage(slot) : nil)
        }
        let channel = EventTarget.channel(try channelID(ofBroadcast: slot))
        return (service.judge(channel, id: id, ordinal: ordinal, connection: connection), nil)
    }

    /// Performs the checks of all requests whose path names an app.
    private func check(_ request: borrowing PushRequest) throws(Refusal) {
        let topic = request.bundleID.withUnsafeBufferPointer { credentials.topic($0) }
        switch (request.path, request.method) {
        case (.broadcast, .post), (.channels, .post), (.channels, .get), (.channels, .delete), (.allChannels, .get):
            break
        default: throw Refusal(.methodNotAllowed)
        }
        guard topic.isWellFormed else { throw Refusal(.badPath) }
        if request.hasDuplicates { throw Refusal(.duplicateHeaders) }
        try RequestCheck.authorize(request, credentials)
        // "Ensure that no push type suffix is added to the bundle ID."
        if PushType.liveactivity.ends(topic.name) { throw Refusal(.topicDisallowed) }
        guard topic.isListed, credentials.certificate == nil || topic.isOfCertificate else {
            throw Refusal(.topicMismatch)
        }
        if case .value(.success(let grant)) = request.authorization, !topic.isFor(grant) {
            throw Refusal(.topicMismatch)
        }
        if request.method == .post || request.path == .allChannels,
            service.settings.appsWithoutBroadcasts.contains(topic.name)
        {
            throw .broadcastFeatureNotEnabled
        }
        if case .bad = request.id { throw Refusal(.badMessageID) }
    }

    /// Checks a broadcast's headers and payload.
    ///
    /// Observed: a channel that never existed answers `BadChannelId`, a deleted one `ChannelNotRegistered`.
    private func channelID(ofBroadcast slot: StreamSlot) throws(Refusal) -> [UInt8] {
        let request = slot.request
        let id = try Self.channelID(request)
        switch request.pushType {
        case .absent: throw Refusal(.missingPushType)
        case .value(let type) where type == .liveactivity: break
        case .bad, .value: throw Refusal(.invalidPushType)
        }
        guard case .value(let expiration) = request.expiration else { throw Refusal(.badExpirationDate) }
        guard case .value = request.priority else { throw Refusal(.badPriority) }
        switch standing(id, request) {
        case .unknown: throw Refusal(.badChannelID)
        case .deleted: throw Refusal(.channelNotRegistered)
        // "For channels with a No Messages Stored storage policy, you can only specify a 0 expiration value."
        case .present(MessageStoragePolicy.none) where expiration != 0: throw Refusal(.badExpirationDate)
        case .present: break
        }
        guard request.bodyLength > 0 else { throw Refusal(.payloadEmpty) }
        guard request.bodyLength <= PushType.maximumBroadcastSize else { throw Refusal(.payloadTooLarge) }
        guard JSONObjectCheck.accepts(slot.bodyBytes) else { throw Refusal(.badRequestPayload) }
        return id
    }

    private static func channelID(_ request: borrowing PushRequest) throws(Refusal) -> [UInt8] {
        switch request.channelID {
        case .absent: throw Refusal(.missingChannelID)
        case .bad: throw Refusal(.badChannelID)
        case .value(let id): return id
        }
    }

    private func standing(_ id: [UInt8], _ request: borrowing PushRequest) -> ChannelRegistry.Standing {
        let app = request.bundleID
        return service.state.withLock { $0.channels.standing(of: id, app: app) }
    }

    // Observed: an unknown channel answers `BadPath`.
    private func manage(_ slot: StreamSlot) throws(Refusal) -> PreparedAnswer {
        let app = slot.request.bundleID
        switch (slot.request.path, slot.request.method) {
        case (.allChannels, _):
            let channels = service.state.withLock { $0.channels.ids(app: app) }
            let ids = channels.map { "\"\(String(decoding: $0, as: UTF8.self))\"" }
            return PreparedAnswer(status: 200, body: "{\"channels\":[\(ids.joined(separator: ","))]}")
        case (_, .post):
            guard slot.request.bodyLength <= StreamSlot.bodyCapacity else { throw Refusal(.payloadTooLarge) }
            let policy = try Self.policy(slot.bodyBytes)
            let created = service.state.withLock { $0.channels.create(policy, app: app, &$0.ids) }
            guard let created else { throw Refusal(.cannotCreateChannelConfig) }
            return PreparedAnswer(status: 201, channelID: created)
        case (_, .delete):
            let id = try Self.channelID(slot.request)
            guard service.state.withLock({ $0.channels.delete(id, app: app) }) else { throw Refusal(.badPath) }
            return PreparedAnswer(status: 204)
        default:
            let id = try Self.channelID(slot.request)
            guard case .present(let policy) = standing(id, slot.request) else { throw Refusal(.badPath) }
            return PreparedAnswer(
                status: 200, body: "{\"message-storage-policy\":\(policy.rawValue),\"push-type\":\"LiveActivity\"}")
        }
    }

    /// A member of the body that creates a channel.
    private enum Attribute: Decodable {
        case number(Int)
        case text(String)
        /// A value of another type. It is treated like an unknown value.
        case other

        init(from decoder: any Decoder) throws {
            let value = try decoder.singleValueContainer()
            if let number = try? value.decode(Int.self) {
                self = .number(number)
            } else if let text = try? value.decode(String.self) {
                self = .text(text)
            } else {
                self = .other
            }
        }
    }

    /// Reads the storage policy from the body that creates a channel. Assumed: a missing or unknown policy answers
    /// `BadRequestParams`.
    private static func policy(_ body: UnsafeBufferPointer<UInt8>) throws(Refusal) -> MessageStoragePolicy {
        guard JSONObjectCheck.accepts(body),
            let attributes = try? JSONDecoder().decode([String: Attribute].self, from: Data(body))
        else { throw Refusal(.badRequestPayload) }
        guard Set(attributes.keys).isSubset(of: ["message-storage-policy", "push-type"]) else {
            throw Refusal(.badRequestParams)
        }
        guard let pushType = attributes["push-type"] else { throw Refusal(.missingPushType) }
        guard case .text("LiveActivity") = pushType else { throw Refusal(.invalidPushType) }
        guard case .number(let number) = attributes["message-storage-policy"], [0, 1].contains(number) else {
            throw Refusal(.badRequestParams)
        }
        return MessageStoragePolicy(rawValue: number)
    }
}
