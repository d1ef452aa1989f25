/// The recording of one connection's notifications.
struct ConnectionRecording {
    private let recorder: Recorder
    private let transport: ReceivedNotification.Transport
    private let connection: Int
    private let topic: String?
    /// Gateway notifications that the account does not count yet. A reader of the recording must find each notification in the account.
    private var gathered: [ReceivedNotification] = []

    /// - Parameters:
    ///   - connection: the number of the connection among those of its transport, from 1.
    ///   - topic: the topic of the client's certificate, if any. The gateway's protocol has no other topic.
    init(_ recorder: Recorder, _ transport: ReceivedNotification.Transport, connection: Int, topic: String?) {
        (self.recorder, self.transport, self.connection, self.topic) = (recorder, transport, connection, topic)
    }

    /// Returns a notification with the facts that do not depend on the protocol.
    /// - Parameters:
    ///   - delay: the delay of the answer, in microseconds.
    ///   - date: milliseconds since 1970.
    func received(
        accepted: Bool, _ outcome: ReceivedNotification.Outcome, delay: Int64 = 0, date: Int64
    ) -> ReceivedNotification {
        var received = ReceivedNotification(
            time: date, transport: transport, connection: connection, accepted: accepted, outcome: outcome)
        received.topic = topic
        received.answerDelay = delay
        return received
    }

    func record(_ notification: ReceivedNotification) { recorder.record(notification) }

    mutating func gather(_ notification: ReceivedNotification) { gathered.append(notification) }

    mutating func write() {
        for notification in gathered { recorder.record(notification) }
        gathered.removeAll(keepingCapacity: true)
    }
}
