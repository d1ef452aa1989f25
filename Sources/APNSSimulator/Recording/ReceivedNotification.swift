/// A notification that somebody asked the simulator to deliver, as it arrived, and what it was told.
///
/// What was refused is one too: a header that breaks the rules is here as it came.
package struct ReceivedNotification: Equatable, Sendable {
    /// What it came by.
    package enum Transport: String, Sendable {
        /// The HTTP/2 provider API.
        case http2
        /// The binary protocol.
        case gateway
    }

    /// What the sender was told, or was not.
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
    /// What it came by.
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
    /// Whether the simulator counts it as accepted, whether or not the sender came to know.
    package var accepted: Bool
    /// What the sender was told.
    package var outcome: Outcome

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

/// The headers of a request as they came, of which the checks keep only what they ask about.
final class RecordedHeaders {
    /// Of a longer value only the beginning is kept: nothing that APNs takes is nearly as long.
    private static let maximumLength = 1000

    private(set) var method = ""
    private(set) var path = ""
    private(set) var topic: String?
    private(set) var pushType: String?
    private(set) var priority: String?
    private(set) var expiration: String?
    private(set) var collapseID: String?
    private(set) var channelID: String?
    private(set) var id: String?

    func take(name: UnsafeBufferPointer<UInt8>, value: UnsafeBufferPointer<UInt8>) {
        let text = { String(decoding: value.prefix(Self.maximumLength), as: UTF8.self) }
        // Of a header that comes twice the first counts, as it does for the checks.
        if name.equals(":method") {
            method = text()
        } else if name.equals(":path") {
            path = text()
        } else if name.equals("apns-topic") {
            topic = topic ?? text()
        } else if name.equals("apns-push-type") {
            pushType = pushType ?? text()
        } else if name.equals("apns-priority") {
            priority = priority ?? text()
        } else if name.equals("apns-expiration") {
            expiration = expiration ?? text()
        } else if name.equals("apns-collapse-id") {
            collapseID = collapseID ?? text()
        } else if name.equals("apns-channel-id") {
            channelID = channelID ?? text()
        } else if name.equals("apns-id") || name.equals("apns-request-id") {
            id = id ?? text()
        }
    }
}
