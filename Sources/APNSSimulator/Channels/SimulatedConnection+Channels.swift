import APNS

/// Broadcasts, and the management of the channels that they are sent on.
extension SimulatedConnection {
    func channelRequestArrived(_ slot: RequestSlot, id: NotificationID) {
        let bundleID = slot.request.bundleID
        let topic = bundleID.withUnsafeBufferPointer { credentials.topic($0) }
        let refusal = ChannelCheck.refusal(
            slot.request, topic: topic, credentials,
            hasFeature: !service.settings.appsWithoutBroadcasts.contains(topic.name))
        if let refusal { return refuse(slot, refusal) }
        do throws(Refusal) {
            if slot.request.path == .broadcast {
                try broadcast(slot, id: id)
            } else {
                let effect = service.judgeManagement(of: bundleID, ordinal: ordinal, connection: number)
                let answer = effect.accepts ? try manage(slot) : nil
                trust()
                slot.fate = .refused
                respond(effect, to: slot, ordinarily: answer)
            }
        } catch {
            refuse(slot, error)
        }
    }

    private func broadcast(_ slot: RequestSlot, id: NotificationID) throws(Refusal) {
        let bundleID = slot.request.bundleID
        let refusal = ChannelCheck.broadcastRefusal(
            slot.request, standing: { service.standing(ofChannel: $0, of: bundleID) },
            isObject: { JSONObjectCheck.accepts(slot.bodyBytes) })
        if let refusal { throw Refusal(refusal) }
        let channelID = try ChannelCheck.channelID(slot.request)
        trust()
        carryOut(service.judge(channel: channelID, id: id, ordinal: ordinal, connection: number), on: slot)
    }

    // Source for the statuses and bodies: Apple, "Sending channel management requests to APNs".
    // That an unknown channel is a bad path is observed.
    private func manage(_ slot: RequestSlot) throws(Refusal) -> PreparedAnswer {
        let bundleID = slot.request.bundleID
        switch (slot.request.path, slot.request.method) {
        case (.allChannels, _):
            let ids = service.channels(of: bundleID).map { "\"\(String(decoding: $0, as: UTF8.self))\"" }
            return PreparedAnswer(status: 200, body: "{\"channels\":[\(ids.joined(separator: ","))]}")
        case (_, .post):
            guard slot.request.bodyLength <= RequestSlot.bodyCapacity else {
                throw Refusal(.payloadTooLarge)
            }
            let policy = try ChannelDescription.policy(slot.bodyBytes)
            guard let id = service.createChannel(policy, of: bundleID) else {
                throw Refusal(.cannotCreateChannelConfig)
            }
            return PreparedAnswer(status: 201, channelID: id)
        case (_, .delete):
            guard service.deleteChannel(try ChannelCheck.channelID(slot.request), of: bundleID) else {
                throw Refusal(.badPath)
            }
            return PreparedAnswer(status: 204)
        default:
            let id = try ChannelCheck.channelID(slot.request)
            guard case .present(let policy) = service.standing(ofChannel: id, of: bundleID) else {
                throw Refusal(.badPath)
            }
            return PreparedAnswer(
                status: 200, body: "{\"message-storage-policy\":\(policy.rawValue),\"push-type\":\"LiveActivity\"}")
        }
    }
}
