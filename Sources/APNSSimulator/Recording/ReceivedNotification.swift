/// A notification that somebody asked the simulator to deliver, as it arrived, and what it was told.
///
/// What was refused is one too: a header that breaks the rules is here as it came.
public struct ReceivedNotification: Equatable, Sendable {
    /// What it came by.
    public enum Transport: String, Sendable {
        /// The HTTP/2 provider API.
        case http2
        /// The binary protocol.
        case gateway
    }

    /// What the sender was told, or was not.
    public enum Outcome: Equatable, Sendable {
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
    public var time: Int64
    /// What it came by.
    public var transport: Transport
    /// Which of the simulator's connections it came on, from 1; the gateway counts its own.
    public var connection: Int
    /// The method and the path, of requests that are no POST for a device or a channel.
    public var request: String?
    /// The device token in lower-case hex digits; what stood in its place, if that was no token.
    public var token: String?
    /// The channel of a broadcast.
    public var channel: String?
    /// The topic; of a broadcast, the app's bundle identifier; of the gateway, that of the client's certificate.
    public var topic: String?
    /// `apns-push-type`.
    public var pushType: String?
    /// The priority, if it was a number.
    public var priority: Int?
    /// When it expires, in seconds since 1970, if it was a number.
    public var expiration: Int64?
    /// `apns-collapse-id`.
    public var collapseID: String?
    /// The `apns-id` that the answer carries, which is the request's own if that had one; of a broadcast, its
    /// `apns-request-id`.
    public var apnsID: String?
    /// The number by which the gateway's sender knows it.
    public var identifier: UInt32?
    /// Headers whose values could not be read, as they came.
    public var malformedHeaders: [String: String] = [:]
    /// The payload, byte for byte; no more of it than APNs takes of the largest.
    public var payload: [UInt8] = []
    /// How many bytes of payload there were.
    public var payloadSize = 0
    /// Whether the simulator counts it as accepted, whether or not the sender came to know.
    public var accepted: Bool
    /// What the sender was told.
    public var outcome: Outcome

    /// A notification of which only the circumstances are known so far.
    /// - Parameters:
    ///   - time: in milliseconds since 1970.
    ///   - connection: which of the simulator's connections it came on, from 1.
    public init(time: Int64, transport: Transport, connection: Int, accepted: Bool, outcome: Outcome) {
        self.time = time
        self.transport = transport
        self.connection = connection
        self.accepted = accepted
        self.outcome = outcome
    }
}
