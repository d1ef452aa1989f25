/// What of a request goes into the recording.
extension SimulatedConnection {
    func record(_ slot: RequestSlot, accepted: Bool, _ outcome: ReceivedNotification.Outcome) {
        guard let recorder = service.recorder, let headers = slot.recorded else { return }
        let request = slot.request
        if request.isAboutChannels, request.path != .broadcast { return }
        var notification = ReceivedNotification(
            time: moment.date, transport: .http2, connection: number, accepted: accepted, outcome: outcome)
        switch request.path {
        case .device: notification.token = request.token?.hex ?? String(headers.path.dropFirst("/3/device/".count))
        case .broadcast: notification.channel = headers.channelID
        case .withoutToken, .other, .channels, .allChannels: break
        }
        if request.method != .post || request.path == .other {
            notification.request = "\(headers.method) \(headers.path)"
        }
        notification.topic = headers.topic ?? credentials.certificate?.topic
        if request.path == .broadcast { notification.topic = String(decoding: request.bundleID, as: UTF8.self) }
        notification.pushType = headers.pushType
        notification.collapseID = headers.collapseID
        notification.apnsID = String(
            decoding: UnsafeBufferPointer(start: slot.idText, count: NotificationID.textLength), as: UTF8.self)
        if case .bad = request.id { notification.malformedHeaders["apns-id"] = headers.id }
        if let text = headers.priority {
            notification.priority = Int(text)
            if notification.priority == nil { notification.malformedHeaders["apns-priority"] = text }
        }
        if let text = headers.expiration {
            notification.expiration = Int64(text)
            if notification.expiration == nil { notification.malformedHeaders["apns-expiration"] = text }
        }
        notification.payload = Array(slot.bodyBytes)
        notification.payloadSize = request.bodyLength
        recorder.record(notification)
    }
}

extension ReceivedNotification.Outcome {
    /// What the sender of a request is told that the rules have judged.
    init(_ effect: PushEffect) {
        switch effect.answer {
        case nil: self = .answered(status: 200, reason: nil)
        case .response(let response): self = .answered(status: response.status, reason: response.reason)
        case .reset: self = .reset
        // With the exact last stream the request is still answered.
        case .goAway(_, .exact): self = .answered(status: 200, reason: nil)
        case .goAway: self = .goAway
        case .drop: self = .dropped
        case .silence: self = .silenced
        }
    }
}
