import APNS

/// Handles broadcasts and the management of their channels.
struct ChannelResponder {
    /// The decision on a request.
    enum Decision {
        case broadcast(PushEffect)
        /// - Parameter answer: the answer unless a rule gives another; nil if the request was not carried out.
        case management(PushEffect, answer: PreparedAnswer?)
    }

    let service: SimulatedService
    let credentials: ClientCredentials
    /// The number of the connection, from 1.
    let connection: Int

    /// Decides on a request and carries it out.
    /// - Parameter ordinal: the number of the request on its connection, from 1.
    func decide(_ slot: RequestSlot, id: NotificationID, ordinal: Int) throws(Refusal) -> Decision {
        let bundleID = slot.request.bundleID
        let topic = bundleID.withUnsafeBufferPointer { credentials.topic($0) }
        let refusal = ChannelCheck.refusal(
            slot.request, topic: topic, credentials,
            hasFeature: !service.settings.appsWithoutBroadcasts.contains(topic.name))
        if let refusal { throw refusal }
        guard slot.request.path == .broadcast else {
            let effect = service.judge(.app(bundleID), id: id, ordinal: ordinal, connection: connection)
            return .management(effect, answer: effect.accepts ? try manage(slot) : nil)
        }
        let reason = ChannelCheck.broadcastRefusal(
            slot.request, standing: { id in service.state.withLock { $0.channels.standing(of: id, app: bundleID) } },
            isObject: { JSONObjectCheck.accepts(slot.bodyBytes) })
        if let reason { throw Refusal(reason) }
        let channelID = try ChannelCheck.channelID(slot.request)
        return .broadcast(service.judge(.channel(channelID), id: id, ordinal: ordinal, connection: connection))
    }

    // Source for the statuses and bodies: Apple, "Sending channel management requests to APNs".
    // Observed: an unknown channel answers `BadPath`.
    private func manage(_ slot: RequestSlot) throws(Refusal) -> PreparedAnswer {
        let bundleID = slot.request.bundleID
        switch (slot.request.path, slot.request.method) {
        case (.allChannels, _):
            let channels = service.state.withLock { $0.channels.ids(app: bundleID) }
            let ids = channels.map { "\"\(String(decoding: $0, as: UTF8.self))\"" }
            return PreparedAnswer(status: 200, body: "{\"channels\":[\(ids.joined(separator: ","))]}")
        case (_, .post):
            guard slot.request.bodyLength <= RequestSlot.bodyCapacity else {
                throw Refusal(.payloadTooLarge)
            }
            let policy = try ChannelDescription.policy(slot.bodyBytes)
            let created = service.state.withLock { $0.channels.create(policy, app: bundleID, &$0.ids) }
            guard let created else { throw Refusal(.cannotCreateChannelConfig) }
            return PreparedAnswer(status: 201, channelID: created)
        case (_, .delete):
            let id = try ChannelCheck.channelID(slot.request)
            guard service.state.withLock({ $0.channels.delete(id, app: bundleID) }) else { throw Refusal(.badPath) }
            return PreparedAnswer(status: 204)
        default:
            let id = try ChannelCheck.channelID(slot.request)
            let standing = service.state.withLock { $0.channels.standing(of: id, app: bundleID) }
            guard case .present(let policy) = standing else { throw Refusal(.badPath) }
            return PreparedAnswer(
                status: 200, body: "{\"message-storage-policy\":\(policy.rawValue),\"push-type\":\"LiveActivity\"}")
        }
    }
}
