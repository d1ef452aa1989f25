import APNS

/// A notification that somebody asked the simulator to deliver, as it arrived, and what it was told.
///
/// Refused notifications are included: a header that breaks the rules is here as it came.
package struct ReceivedNotification: Equatable, Sendable {
    /// The transport.
    package enum Transport: String, Sendable {
        /// The HTTP/2 provider API.
        case http2
        /// The binary protocol.
        case gateway
    }

    /// The answer to the sender, or its absence.
    package enum Outcome: Equatable, Sendable {
        /// An answer: an HTTP status with the reason of its body, or the status of the gateway's error packet with its
        /// name. Of the gateway, 0 stands for what it says nothing about, because it is accepted.
        case answered(status: Int, reason: String?)
        /// The stream was reset, or the gateway's connection.
        case reset
        /// A GOAWAY said that it was not processed.
        case goAway
        /// The connection was cut off without a word. Of the gateway: it came behind one that ended the connection, and was
        /// thrown away.
        case dropped
        /// No answer comes, ever.
        case silenced
        /// The connection was closed in good order without an answer.
        case closed
    }

    /// When it had arrived whole, in milliseconds since 1970.
    package var time: Int64
    /// The transport.
    package var transport: Transport
    /// Which of the simulator's connections it came on, from 1; the gateway counts its own.
    package var connection: Int
    /// The method and the path, of requests that are no POST for a device or a channel.
    package var request: String?
    /// The device token in lower-case hex digits; what stood in its place, if that was no token.
    package var token: String?
    /// The channel of a broadcast.
    package var channel: String?
    /// The topic; of a broadcast, the app's bundle identifier; of the gateway, that of the client's certificate.
    package var topic: String?
    /// `apns-push-type`.
    package var pushType: String?
    /// The priority, if it was a number.
    package var priority: Int?
    /// When it expires, in seconds since 1970, if it was a number.
    package var expiration: Int64?
    /// `apns-collapse-id`.
    package var collapseID: String?
    /// The `apns-id` that the answer carries, which is the request's own if that had one; of a broadcast, its
    /// `apns-request-id`.
    package var apnsID: String?
    /// The number by which the gateway's sender knows it.
    package var identifier: UInt32?
    /// Headers whose values could not be read, as they came.
    package var malformedHeaders: [String: String] = [:]
    /// The payload, byte for byte; no more of it than APNs takes of the largest.
    package var payload: [UInt8] = []
    /// How many bytes of payload there were.
    package var payloadSize = 0
    /// True if the simulator counts it as accepted, whether or not the sender came to know.
    package var accepted: Bool
    /// The answer to the sender.
    package var outcome: Outcome
    /// The time for which the answer is held back, in microseconds.
    package var answerDelay: Int64 = 0

    /// A notification of which only the circumstances are known so far.
    /// - Parameters:
    ///   - time: in milliseconds since 1970.
    ///   - connection: which of the simulator's connections it came on, from 1.
    package init(time: Int64, transport: Transport, connection: Int, accepted: Bool, outcome: Outcome) {
        self.time = time
        self.transport = transport
        self.connection = connection
        self.accepted = accepted
        self.outcome = outcome
    }
}

extension ReceivedNotification.Outcome {
    /// The outcome of a notification that the gateway accepts: it has no answer.
    static let acceptedByGateway = answered(status: 0, reason: nil)

    /// - Parameter isSimple: true if it came with the command that knows no error packets.
    static func refused(_ status: GatewayStatus, isSimple: Bool) -> Self {
        isSimple ? .closed : .answered(status: Int(status.code), reason: status.name)
    }
}

extension ReceivedNotification {
    /// The notification as a JSON object on one line; what it does not have is left out.
    ///
    /// The payload is in `payload` with its numbers and the order of its members as they came. One that is no JSON object
    /// is in `payload_text`.
    /// - Parameter sequence: its number in the recording.
    func json(sequence: UInt64) -> [UInt8] {
        var object = JSONObjectWriter()
        object.member("sequence", sequence)
        object.member("time", time)
        object.member("transport", transport.rawValue)
        object.member("connection", connection)
        object.member("request", request)
        object.member("token", token)
        object.member("channel", channel)
        object.member("topic", topic)
        object.member("push_type", pushType)
        object.member("priority", priority)
        object.member("expiration", expiration)
        object.member("collapse_id", collapseID)
        object.member("apns_id", apnsID)
        object.member("identifier", identifier)
        if !malformedHeaders.isEmpty { object.member("malformed_headers", malformedHeaders) }
        write(payloadInto: &object)
        object.member("payload_bytes", payloadSize)
        object.member("accepted", accepted)
        switch outcome {
        case .answered(let status, let reason):
            var answer = JSONObjectWriter()
            answer.member("status", status)
            answer.member("reason", reason)
            object.member("outcome", json: answer.finished)
        case .reset: object.member("outcome", "reset")
        case .goAway: object.member("outcome", "goaway")
        case .dropped: object.member("outcome", "dropped")
        case .silenced: object.member("outcome", "silenced")
        case .closed: object.member("outcome", "closed")
        }
        return object.finished
    }

    private func write(payloadInto object: inout JSONObjectWriter) {
        guard !payload.isEmpty else { return }
        // The check lets strings through that are no UTF-8, and those would spoil the whole line.
        let isObject = payload.withUnsafeBufferPointer { JSONObjectCheck.accepts($0) }
        if isObject, payload.count == payloadSize, String(validating: payload, as: UTF8.self) != nil {
            // Outside of strings a line's end is a space, and inside it is not allowed.
            object.member("payload", json: payload.lazy.map { $0 == 0x0A || $0 == 0x0D ? 0x20 : $0 })
        } else {
            object.member("payload_text", String(decoding: payload, as: UTF8.self))
        }
    }
}
