import APNS

/// Broadcasts, and the management of the channels that they are sent on.
extension SimulatedConnection {
    func channelRequestArrived(_ slot: RequestSlot, id: NotificationID) {
        let bundleID = slot.request.bundleID
        let topic = bundleID.withUnsafeBufferPointer { self.topic($0) }
        let refusal = ChannelCheck.refusal(
            slot.request, topic: topic, hasCertificate: certificateTopic != nil, now: moment.date / 1000)
        if let refusal { return refuse(slot, refusal) }
        do throws(ChannelCheck.Refusal) {
            if slot.request.path == .broadcast {
                try broadcast(slot, id: id)
            } else {
                let answer = try manage(slot)
                trust()
                self.answer(slot, answer)
            }
        } catch {
            refuse(slot, error.reason)
        }
    }

    private func broadcast(_ slot: RequestSlot, id: NotificationID) throws(ChannelCheck.Refusal) {
        let bundleID = slot.request.bundleID
        let refusal = ChannelCheck.broadcastRefusal(
            slot.request, policy: { service.policy(ofChannel: $0, of: bundleID) },
            isObject: { JSONObjectCheck.accepts(slot.bodyBytes) })
        if let refusal { throw ChannelCheck.Refusal(reason: refusal) }
        let channelID = try ChannelCheck.channelID(slot.request)
        trust()
        carryOut(service.judge(channel: channelID, id: id, ordinal: ordinal, connection: number), on: slot)
    }

    // Source for the statuses and bodies: Apple, "Sending channel management requests to APNs".
    private func manage(_ slot: RequestSlot) throws(ChannelCheck.Refusal) -> PreparedAnswer {
        let bundleID = slot.request.bundleID
        switch (slot.request.path, slot.request.method) {
        case (.allChannels, _):
            let ids = service.channels(of: bundleID).map { "\"\(String(decoding: $0, as: UTF8.self))\"" }
            return PreparedAnswer(status: 200, body: "{\"channels\":[\(ids.joined(separator: ","))]}")
        case (_, .post):
            guard slot.request.bodyLength <= RequestSlot.bodyCapacity else {
                throw ChannelCheck.Refusal(reason: .payloadTooLarge)
            }
            let policy = try ChannelDescription.policy(slot.bodyBytes)
            guard let id = service.createChannel(policy, of: bundleID) else {
                throw ChannelCheck.Refusal(reason: .cannotCreateChannelConfig)
            }
            return PreparedAnswer(status: 201, channelID: id)
        case (_, .delete):
            guard service.deleteChannel(try ChannelCheck.channelID(slot.request), of: bundleID) else {
                throw ChannelCheck.Refusal(reason: .channelNotRegistered)
            }
            return PreparedAnswer(status: 204)
        default:
            guard let policy = service.policy(ofChannel: try ChannelCheck.channelID(slot.request), of: bundleID) else {
                throw ChannelCheck.Refusal(reason: .channelNotRegistered)
            }
            return PreparedAnswer(
                status: 200, body: "{\"message-storage-policy\":\(policy.rawValue),\"push-type\":\"LiveActivity\"}")
        }
    }
}
