import APNS

/// The recording of one connection to the binary gateway.
///
/// Notifications are gathered, so that the account has them before whoever reads the recording knows of them.
struct GatewayRecording {
    private let recorder: Recorder
    private let connection: Int
    private let topic: String?
    private var gathered: [ReceivedNotification] = []

    /// - Parameters:
    ///   - connection: which of the gateway's connections it is, from 1.
    ///   - topic: that of the client's certificate, for the protocol itself has none.
    init(_ recorder: Recorder, connection: Int, topic: String?) {
        self.recorder = recorder
        self.connection = connection
        self.topic = topic
    }

    /// - Parameters:
    ///   - delay: microseconds for which the answer is held back.
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

    /// Bytes that are no notification, of which only the identifier is known, or not even that.
    /// - Parameter date: milliseconds since 1970.
    mutating func gather(_ fault: GatewayFault, date: Int64) {
        var received = received(
            accepted: false, .refused(fault.status, isSimple: fault.isSimple), date: date)
        if fault.identifier != 0 { received.identifier = fault.identifier }
        gathered.append(received)
    }

    /// Enters what was gathered.
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
