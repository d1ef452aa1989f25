import APNS

/// One scripted fault of the binary gateway: which notifications or connections it meets and what happens to them.
///
/// Rules apply to notifications that pass every check of `GatewayCheck`, or to connections of clients whose
/// certificate is taken, in the order they are given. The first that meets one decides.
public struct GatewayRule: Equatable, Sendable {
    /// What a rule is about.
    public enum Point: String, CaseIterable, Sendable {
        /// A connection, once TLS is established.
        case connect
        /// A notification.
        case notification
    }

    /// What happens.
    public enum Answer: Equatable, Sendable {
        /// An error packet, and the end of the connection.
        case packet(Packet)
        /// The connection ends without a packet.
        case close
        /// Nothing is read any more, and the connection stays.
        case hang
        /// The connection ends with a TCP reset.
        case reset
        /// The notification is accepted, and the feedback service tells that its app is gone.
        case feedback
    }

    /// An error packet, and how it is sent.
    public struct Packet: Equatable, Sendable {
        /// What it says.
        public var status: GatewayStatus
        /// Which notification it names.
        public var identifier = Identifier.own
        /// Whether its bytes come one by one.
        public var isSplit = false
        /// Whether only its first three bytes come.
        public var isHalf = false
        /// Whether the connection stays open after it, until the client closes: what comes is read and dropped.
        public var lingers = false
    }

    /// Which notification a packet names.
    public enum Identifier: String, CaseIterable, Sendable {
        /// The one that met the rule; with status 10 the last that was accepted.
        case own
        /// 0.
        case zero = "0"
        /// One that the client has not sent, unless it numbers without any order: the complement of its own.
        case wrong
    }

    /// The rule as it was written, without the spaces around its parts.
    public internal(set) var text = ""
    /// What it is about.
    public var point = Point.notification
    /// The token's first digits; nil meets all.
    var prefix: TokenPrefix?
    /// The share of notifications, or connections, it meets, 0 to 1.
    public var rate: Double?
    /// It meets the first so many notifications of each token, or the first so many connections.
    public var times: Int?
    /// It meets every so-manieth notification of a connection, or connection.
    public var after: Int?
    /// What happens.
    public var answer: Answer
    /// Whether the notification counts as accepted (`packet` with status 10, `close`, `hang`, `reset`).
    public var accepts = false
    /// How late the packet or the end of the connection comes. What arrives meanwhile is dropped.
    public var delay: AnswerDelay?
}
