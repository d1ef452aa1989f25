import APNS

/// The recording of one connection to the binary gateway.
///
/// Notifications are buffered, so that they are in the account before a reader of the recording can see them.
struct GatewayRecording {
    private let recorder: Recorder
    private let connection: Int
    private let topic: String?
    private var gathered: [ReceivedNotification] = []

    /// - Parameters:
    ///   - connection: the number of the gateway's connection, from 1.
    ///   - topic: that of the client's certificate, because the protocol has none.
    init(_ recorder: Recorder, connection: Int, topic: String?) {
        self.recorder = recorder
        self.connection = connection
        self.topic = topic
    }

    /// Buffers a notification.
    /// - Parameters:
    ///   - delay: the delay of the answer, in microseconds.
    ///   - date: milliseconds since 1970.
    mutating func gather(
        _ notification: GatewayNotification, accepted: Bool, _ outcome: ReceivedNotification.Outcome,
        delay: Int64 = 0, date: Int64
    ) {
        var received = received(accepted: accepted, outcome, date: date)
        received.answerDelay = delay
        if let token = notification.token, !token.isEmpty { received.token = Hexadecimal.text(token) }
        received.identifier = notification.identifier
        received.expiration = notification.expiration.map { Int64($0) }
        received.priority = notification.priority.map { Int($0) }
        if let payload = notification.payload {
            received.payload = Array(payload.prefix(RequestSlot.bodyCapacity))
            received.payloadSize = payload.count
        }
        gathered.append(received)
    }

    /// Buffers bytes that are not a notification, of which at most the identifier is known.
    /// - Parameter date: milliseconds since 1970.
    mutating func gather(_ fault: GatewayFault, date: Int64) {
        var received = received(
            accepted: false, .refused(fault.status, isSimple: fault.isSimple), date: date)
        if fault.identifier != 0 { received.identifier = fault.identifier }
        gathered.append(received)
    }

    /// Records the buffered notifications.
    mutating func write() {
        for notification in gathered { recorder.record(notification) }
        gathered.removeAll(keepingCapacity: true)
    }

    private func received(
        accepted: Bool, _ outcome: ReceivedNotification.Outcome, date: Int64
    ) -> ReceivedNotification {
        var received = ReceivedNotification(
            time: date, transport: .gateway, connection: connection, accepted: accepted, outcome: outcome)
        received.topic = topic
        return received
    }
}
