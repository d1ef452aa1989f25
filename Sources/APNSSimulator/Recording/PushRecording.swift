/// The recording of one connection over HTTP/2.
struct PushRecording {
    private let recorder: Recorder
    private let connection: Int
    private let topic: String?

    /// - Parameters:
    ///   - connection: the number of the connection, from 1.
    ///   - topic: that of the client's certificate, if it has one.
    init(_ recorder: Recorder, connection: Int, topic: String?) {
        self.recorder = recorder
        self.connection = connection
        self.topic = topic
    }

    /// Records a notification; ignores requests that manage channels.
    /// - Parameters:
    ///   - delay: the delay of the answer, in microseconds.
    ///   - date: milliseconds since 1970.
    func record(
        _ slot: RequestSlot, accepted: Bool, _ outcome: ReceivedNotification.Outcome, delay: Int64 = 0, date: Int64
    ) {
        guard let headers = slot.recorded else { return }
        let request = slot.request
        if request.isAboutChannels, request.path != .broadcast { return }
        var notification = ReceivedNotification(
            time: date, transport: .http2, connection: connection, accepted: accepted, outcome: outcome)
        notification.answerDelay = delay
        switch request.path {
        case .device: notification.token = request.token?.hex ?? String(headers.path.dropFirst("/3/device/".count))
        case .broadcast: notification.channel = headers.channelID
        case .withoutToken, .other, .channels, .allChannels: break
        }
        if request.method != .post || request.path == .other {
            notification.request = "\(headers.method) \(headers.path)"
        }
        notification.topic = headers.topic ?? topic
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
