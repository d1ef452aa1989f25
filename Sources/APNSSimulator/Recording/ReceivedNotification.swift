import APNS
import LegacyAPNS
import NIOCore
import PushJob
import WebPages

/// A notification as the simulator received it, and its answer.
///
/// Refused notifications are recorded too, with malformed headers as received.
package struct ReceivedNotification: Equatable, Sendable {
    package enum Transport: String, Sendable {
        case http2
        case gateway
    }

    /// The answer to the sender, or the way in which the answer was lost.
    package enum Outcome: Equatable, Sendable {
        /// An answer: an HTTP status with the reason in its body, or the status and name of the gateway's error packet. 0 means that the
        /// gateway accepted the notification and sent no answer.
        case answered(status: Int, reason: String?)
        /// The stream, or the gateway's connection, was reset.
        case reset
        /// A GOAWAY reported the request as unprocessed.
        case goAway
        /// The connection was dropped without an answer. At the gateway: the notification was discarded, because it arrived after a
        /// notification that ended the connection.
        case dropped
        /// The request is never answered.
        case silenced
        /// The connection was closed cleanly without an answer.
        case closed
    }

    /// The time when the notification had arrived completely, in milliseconds since 1970.
    package var time: Int64
    package var transport: Transport
    /// The number of the connection, from 1. The gateway's connections are counted separately.
    package var connection: Int
    /// The method and path; nil for a POST to a device or a channel.
    package var request: String?
    /// The device token in lower-case hex digits. If it is malformed, the text as received.
    package var token: String?
    package var channel: String?
    /// The topic; for a broadcast, the app's bundle identifier; for the gateway, the topic of the client's certificate.
    package var topic: String?
    package var pushType: String?
    /// The priority, if it is a number.
    package var priority: Int?
    /// The expiration, in seconds since 1970, if it is a number.
    package var expiration: Int64?
    package var collapseID: String?
    /// The `apns-id` of the answer: the request's own, or a generated one; for a broadcast, the `apns-request-id`.
    package var apnsID: String?
    /// The identifier that the gateway's client gave the notification.
    package var identifier: UInt32?
    /// Headers with malformed values, as received.
    package var malformedHeaders: [String: String] = [:]
    /// The payload, byte for byte, up to the largest length that APNs accepts.
    package var payload: [UInt8] = []
    /// The length of the whole payload, in bytes.
    package var payloadSize = 0
    /// True if the simulator counts the notification as accepted, even if the sender got no answer.
    package var accepted: Bool
    package var outcome: Outcome
    /// The delay of the answer, in microseconds.
    package var answerDelay: Int64 = 0
}

extension ReceivedNotification.Outcome {
    /// The outcome of a notification that the gateway accepted.
    static let acceptedByGateway = answered(status: 0, reason: nil)

    /// - Parameter isSimple: true if the notification came with command 0, which has no error packets.
    static func refused(_ status: GatewayStatus, isSimple: Bool) -> Self {
        isSimple ? .closed : .answered(status: Int(status.code), reason: status.name)
    }
}

extension ReceivedNotification {
    /// Mistakes in the payload according to Apple's documentation. APNs accepts the payload nevertheless.
    package var mistakes: [String] {
        // The payload of an `mdm` push is read only by the app.
        guard payload.count == payloadSize, pushType != "mdm" else { return [] }
        return MistakeFinder.mistakes(inPayload: ByteBuffer(bytes: payload)).map(\.description)
    }

    /// Returns the notification as a JSON object on one line. Members without a value are omitted.
    ///
    /// The numbers and the order of members in `payload` are unchanged. A payload that is not a JSON object is in `payload_text`.
    /// - Parameter sequence: the number of the notification in the recording.
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
        let mistakes = mistakes
        if !mistakes.isEmpty { object.member("mistakes", mistakes) }
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

    func write(payloadInto object: inout JSONObjectWriter) {
        guard !payload.isEmpty else { return }
        let isObject = payload.withUnsafeBufferPointer { JSONObjectCheck.accepts($0) }
        if isObject, payload.count == payloadSize {
            // Outside of strings, a line break equals a space. Inside, it is invalid.
            object.member("payload", json: payload.lazy.map { $0 == 0x0A || $0 == 0x0D ? 0x20 : $0 })
        } else {
            object.member("payload_text", String(decoding: payload, as: UTF8.self))
        }
    }
}

extension ReceivedNotification {
    var preview: PushPreview {
        PushPreview(
            payload: payload, pushType: pushType, topic: topic, priority: priority, expiration: expiration,
            collapseID: collapseID)
    }

    /// Returns true if a search for a text finds the notification. Case does not matter.
    func contains(_ text: String) -> Bool {
        let wanted = text.lowercased()
        let names = [token, channel, topic, apnsID, pushType ?? preview.kind.name]
        return names.contains { $0?.lowercased().contains(wanted) ?? false } || PayloadText.contains(text, in: payload)
    }

    /// True if the sender gets an answer, or if the gateway accepted the notification, which needs no answer.
    var hasAnswer: Bool { if case .answered = outcome { true } else { false } }

    /// True if the notification was accepted and the sender knows that.
    var isSuccess: Bool { accepted && hasAnswer }

    /// The answer, such as `410 Unregistered` or `no answer`.
    var answerText: String {
        let text =
            switch outcome {
            case .answered(0, _) where transport == .gateway: "accepted"
            case .answered(let status, let reason): "\(status)" + (reason.map { " \($0)" } ?? "")
            case .reset: transport == .http2 ? "stream reset" : "connection reset"
            case .goAway: "GOAWAY, not processed"
            case .dropped: transport == .http2 ? "connection lost" : "discarded with the connection"
            case .silenced: "no answer"
            case .closed: "connection closed"
            }
        return accepted && !hasAnswer ? text + ", but accepted" : text
    }

    /// The delay of the answer, such as `41 ms`; `nil` if it is below 1 ms or if there is no answer.
    var delayText: String? {
        guard answerDelay >= 1000, hasAnswer else { return nil }
        let milliseconds = answerDelay / 1000
        return milliseconds < 1000 ? "\(milliseconds) ms" : "\(milliseconds / 1000).\(milliseconds % 1000 / 100) s"
    }

    /// Returns true if both are attempts to send the same notification: the same `apns-id`, or the same payload for the same device.
    func isAttempt(of other: ReceivedNotification) -> Bool {
        if let apnsID, apnsID == other.apnsID { return true }
        return token != nil && token == other.token && topic == other.topic && payload == other.payload
    }

    /// The value of ``InboxFilter/answer`` that selects this answer.
    var answerKey: String {
        guard case .answered(let status, _) = outcome else { return "lost" }
        return "\(status)"
    }

    /// The answer if the notification reached no device.
    var refusal: String? { accepted ? nil : answerText }
}

extension ReceivedNotification {
    /// The headers of the request, or the fields of the gateway's frame, as received.
    var fields: [(name: String, value: String)] {
        let malformed = malformedHeaders
        let all: [(String, String?)] =
            transport == .http2
            ? [
                ("apns-topic", topic), ("apns-push-type", pushType),
                ("apns-priority", malformed["apns-priority"] ?? priority.map { "\($0)" }),
                ("apns-expiration", malformed["apns-expiration"] ?? expiration.map { "\($0)" }),
                ("apns-collapse-id", malformed["apns-collapse-id"] ?? collapseID), ("apns-channel-id", channel),
                (channel == nil ? "apns-id" : "apns-request-id", malformed["apns-id"] ?? apnsID),
            ]
            : [
                ("identifier", identifier.map { "\($0)" }), ("priority", priority.map { "\($0)" }),
                ("expiration", expiration.map { "\($0)" }), ("topic of the certificate", topic),
            ]
        return all.compactMap { name, value in value.map { (name, $0) } }
    }

    /// A fixture for a test: a JSON object with `transport`, `token`, `headers`, the `payload` as received, and the `answer`.
    var fixture: [UInt8] {
        var object = JSONObjectWriter()
        object.member("transport", transport.rawValue)
        object.member("request", request)
        object.member("token", token)
        object.member("channel", channel)
        object.member("headers", Dictionary(fields.map { ($0.name, $0.value) }) { first, _ in first })
        write(payloadInto: &object)
        var answer = JSONObjectWriter()
        answer.member("accepted", accepted)
        if case .answered(let status, let reason) = outcome {
            answer.member("status", status)
            answer.member("reason", reason)
        } else {
            answer.member("lost", answerText)
        }
        object.member("answer", json: answer.finished)
        return object.finished + [UInt8(ascii: "\n")]
    }
}
