import NIOCore

/// APNs' answer to one notification.
public struct Response: Sendable, Equatable {
    /// The HTTP status.
    public var status: Int
    /// Why it was refused, where APNs gave a reason that we know.
    public var reason: APNSReason?
    /// The `reason` as it came, for reasons that Apple adds after this was written; `nil` where there was none.
    public var reasonText: String?
    /// With 410: since when the token has not been valid, in milliseconds since 1970.
    public var timestamp: Int64?
    /// `Retry-After` in seconds.
    public var retryAfter: Int?
    /// `apns-unique-id`, by which Apple's console finds the notification's delivery log; `nil` unless the transport keeps it.
    public var uniqueID: APNSID?
    /// The connection, for an answer after which APNs accepts nothing on it any more; see ``turnsAgainstConnection``.
    public var connection: Int?

    /// Makes a response; see the members for units.
    public init(
        status: Int, reason: APNSReason? = nil, reasonText: String? = nil, timestamp: Int64? = nil,
        retryAfter: Int? = nil
    ) {
        self.status = status
        self.reason = reason
        self.reasonText = reasonText ?? reason?.rawValue
        self.timestamp = timestamp
        self.retryAfter = retryAfter
    }

    /// True for the answers after which APNs goes on refusing what is sent on that connection: `ExpiredProviderToken` (observed,
    /// although the token was renewed), `TooManyProviderTokenUpdates` (counted per connection) and `UnrelatedKeyIdInToken`
    /// ("To use this token, open a new connection").
    public var turnsAgainstConnection: Bool {
        switch reason {
        case .expiredProviderToken, .unrelatedKeyIDInToken: status == 403
        case .tooManyProviderTokenUpdates: status == 429
        default: false
        }
    }

    /// Reads an error response's body. A body that is empty or not the JSON object that APNs documents gives a response
    /// without a reason, never an error: proxies in between answer in HTML. A reason that is no word is none, for reasons
    /// become the names of counters.
    public init(status: Int, body: ByteBuffer?, retryAfter: Int?) {
        let parsed = body.flatMap(ResponseBody.init).flatMap { $0.isWord ? $0 : nil }
        self.init(
            status: status, reason: parsed.flatMap { APNSReason(rawValue: $0.reason) }, reasonText: parsed?.reason,
            timestamp: parsed?.timestamp, retryAfter: retryAfter)
    }
}

/// How a request ended.
public enum RequestResult: Sendable, Equatable {
    /// APNs answered.
    case response(Response)
    /// APNs has certainly not processed it: it may be sent again at once, as if for the first time.
    case notProcessed(RequestFailure)
    /// It was written and never answered: APNs may have accepted it.
    case uncertain(RequestFailure)
    /// The binary gateway has taken it, as far as that can be known: it says nothing of what it takes.
    case confirmed
    /// The binary gateway named it in an error packet.
    case refused(GatewayStatus)
}

/// Why a request got no answer.
public enum RequestFailure: Error, Sendable, Equatable, CustomStringConvertible {
    /// The server refused the stream before looking at it (REFUSED_STREAM).
    case refusedStream
    /// The connection was going away and the stream lay above the last one that the server processed.
    case goingAway(reason: String?)
    /// The server ended the stream with this HTTP/2 error code before answering.
    case reset(code: UInt32)
    /// No answer within the time a request is given.
    case timedOut
    /// The connection went away.
    case connectionLost(String)
    /// The connection was retired as unresponsive before the request could be written.
    case unresponsive
    /// It was not sent, because it already ran into its deadline on all connections that have free streams.
    case noOtherConnection
    /// The binary gateway dropped it, because of another that was sent before it on the same connection.
    case discarded
    /// The binary gateway accepts connections, and drops each with the first notification, without a word.
    case hungUp

    /// One line for a log or an `error` member.
    public var description: String {
        switch self {
        case .refusedStream: "the server refused the stream (REFUSED_STREAM)"
        case .goingAway(let reason): "the server closed the connection (GOAWAY\(reason.map { ", \($0)" } ?? ""))"
        case .reset(let code): "the server reset the stream with HTTP/2 error code \(code)"
        case .timedOut: "no answer in time"
        case .connectionLost(let why): "the connection was lost: \(why)"
        case .unresponsive: "the connection was retired before the request could be written"
        case .noOtherConnection: "no answer in time on any of the connections; another is opened"
        case .discarded: "the gateway dropped it, because an earlier notification was invalid"
        case .hungUp: "the gateway drops connections when something is sent"
        }
    }

    /// The failure without its circumstances. The raw value is the code in counters and records.
    public enum Kind: String, CaseIterable, Sendable {
        case refusedStream = "RefusedStream"
        case goingAway = "GoAway"
        case reset = "StreamReset"
        case timedOut = "NoAnswer"
        case connectionLost = "ConnectionLost"
        case unresponsive = "Unresponsive"
        case noOtherConnection = "NoOtherConnection"
        case discarded = "Discarded"
        case hungUp = "HungUp"
    }

    /// The failure without its circumstances.
    public var kind: Kind {
        switch self {
        case .refusedStream: .refusedStream
        case .goingAway: .goingAway
        case .reset: .reset
        case .timedOut: .timedOut
        case .connectionLost: .connectionLost
        case .unresponsive: .unresponsive
        case .noOtherConnection: .noOtherConnection
        case .discarded: .discarded
        case .hungUp: .hungUp
        }
    }
}
