import APNS
import PrintableText

struct ConnectionRecording {
    private let recorder: Recorder
    private let transport: ReceivedNotification.Transport
    private let connection: Int
    private let topic: String?
    /// The gateway's notifications are buffered until they are in the account. So a reader of the recording finds them there.
    private var gathered: [ReceivedNotification] = []

    /// - Parameters:
    ///   - connection: the number of the connection among those of its transport, from 1.
    ///   - topic: the topic of the client's certificate, if any. The gateway's protocol has no other topic.
    init(_ recorder: Recorder, _ transport: ReceivedNotification.Transport, connection: Int, topic: String?) {
        (self.recorder, self.transport, self.connection, self.topic) = (recorder, transport, connection, topic)
    }

    /// - Parameters:
    ///   - delay: the delay of the answer, in microseconds.
    ///   - date: milliseconds since 1970.
    private func received(
        accepted: Bool, _ outcome: ReceivedNotification.Outcome, delay: Int64, date: Int64
    ) -> ReceivedNotification {
        var received = ReceivedNotification(
            time: date, transport: transport, connection: connection, accepted: accepted, outcome: outcome)
        received.topic = topic
        received.answerDelay = delay
        return received
    }

    /// Records a request over HTTP/2, unless it manages channels.
    func record(
        _ slot: StreamSlot, accepted: Bool, _ outcome: ReceivedNotification.Outcome, delay: Int64 = 0, date: Int64
    ) {
        let request = slot.request
        guard let headers = slot.recorded, !request.isManagement else { return }
        var notification = received(accepted: accepted, outcome, delay: delay, date: date)
        let (method, path) = (headers[":method"] ?? "", headers[":path"] ?? "")
        switch request.path {
        case .device: notification.token = request.token?.hex ?? String(path.dropFirst("/3/device/".count))
        case .broadcast: notification.channel = headers["apns-channel-id"]
        case .withoutToken, .other, .channels, .allChannels: break
        }
        if request.method != .post || request.path == .other { notification.request = "\(method) \(path)" }
        if let topic = headers["apns-topic"] { notification.topic = topic }
        if request.path == .broadcast { notification.topic = String(decoding: request.bundleID, as: UTF8.self) }
        notification.pushType = headers["apns-push-type"]
        notification.collapseID = headers["apns-collapse-id"]
        notification.apnsID = String(
            decoding: UnsafeBufferPointer(start: slot.idText, count: APNSID.textLength), as: UTF8.self)
        if case .bad = request.id { notification.malformedHeaders["apns-id"] = headers["apns-id"] }
        notification.priority = headers["apns-priority"].flatMap { Int($0) }
        if notification.priority == nil { notification.malformedHeaders["apns-priority"] = headers["apns-priority"] }
        notification.expiration = headers["apns-expiration"].flatMap { Int64($0) }
        if notification.expiration == nil {
            notification.malformedHeaders["apns-expiration"] = headers["apns-expiration"]
        }
        notification.payload = Array(slot.bodyBytes)
        notification.payloadSize = request.bodyLength
        recorder.record(notification)
    }

    /// Buffers a notification of the gateway.
    mutating func gather(
        _ notification: GatewayNotification, accepted: Bool, _ outcome: ReceivedNotification.Outcome,
        delay: Int64 = 0, date: Int64
    ) {
        var received = received(accepted: accepted, outcome, delay: delay, date: date)
        if let token = notification.token, !token.isEmpty { received.token = token.hex }
        received.identifier = notification.identifier
        received.expiration = notification.expiration.map { Int64($0) }
        received.priority = notification.priority.map { Int($0) }
        if let payload = notification.payload {
            received.payload = Array(payload.prefix(StreamSlot.bodyCapacity))
            received.payloadSize = payload.count
        }
        gathered.append(received)
    }

    /// Buffers bytes that are not a notification. Only their identifier may be known.
    mutating func gather(_ fault: GatewayFault, date: Int64) {
        var received = received(
            accepted: false, .refused(fault.status, isSimple: fault.isSimple), delay: 0, date: date)
        if fault.identifier != 0 { received.identifier = fault.identifier }
        gathered.append(received)
    }

    /// Records the buffered notifications.
    mutating func write() {
        for notification in gathered { recorder.record(notification) }
        gathered.removeAll(keepingCapacity: true)
    }
}
