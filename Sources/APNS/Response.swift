import NIOCore

public struct Response: Sendable, Equatable {
    public var status: Int
    /// The reason for a refusal, if this version knows it.
    public var reason: APNSReason?
    /// The `reason` as received, because Apple may add reasons after this version; `nil` if there was none.
    public var reasonText: String?
    /// With 410: the time when the token became invalid, in milliseconds since 1970.
    public var timestamp: Int64?
    /// `Retry-After` in seconds.
    public var retryAfter: Int?
    /// `apns-unique-id`, which finds the notification's delivery log in Apple's console; `nil` unless the transport keeps it.
    public var uniqueID: APNSID?
    /// The probable sender of an answer with status 200. APNs answers each request with its `apns-id`, and success without a body.
    public var origin = Origin.apns
    /// The retired connection, if APNs accepts nothing more on it after this answer; see ``turnsAgainstConnection``.
    public var connection: RefusedConnection?

    /// A connection that APNs accepts nothing more on.
    public struct RefusedConnection: Sendable, Equatable {
        public var number: Int
        /// The number of the newest connection when the answer arrived. Later connections have higher numbers.
        public var newest: Int

        public init(number: Int, newest: Int) {
            self.number = number
            self.newest = newest
        }
    }

    public enum Origin: Sendable, Equatable {
        case apns
        /// The answer has no `apns-id` and no body. Perhaps a proxy removed the header.
        case unnamed
        /// The answer has no `apns-id`, but a body.
        case doubtful
    }

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

    /// True if APNs refuses everything that is sent on this connection afterwards: `ExpiredProviderToken` (observed, even after the token
    /// was renewed), `TooManyProviderTokenUpdates` (counted per connection) and `UnrelatedKeyIdInToken` ("To use this token, open a new
    /// connection").
    public var turnsAgainstConnection: Bool {
        switch reason {
        case .expiredProviderToken, .unrelatedKeyIDInToken: status == 403
        case .tooManyProviderTokenUpdates: status == 429
        default: false
        }
    }

    /// Reads an error response's body. If it is empty or not the JSON object that APNs documents, the response has no reason: proxies
    /// answer in HTML. A reason must be a single word, because reasons become the names of counters.
    public init(status: Int, body: ByteBuffer?, retryAfter: Int?) {
        let parsed = body.flatMap(ResponseBody.init)
        self.init(
            status: status, reason: parsed.flatMap { APNSReason(rawValue: $0.reason) }, reasonText: parsed?.reason,
            timestamp: parsed?.timestamp, retryAfter: retryAfter)
    }
}

public enum RequestResult: Sendable, Equatable {
    case response(Response)
    /// APNs has certainly not processed the request. It can be resent at once, as if for the first time.
    case notProcessed(RequestFailure)
    /// The request was written and never answered, so APNs may have accepted it.
    case uncertain(RequestFailure)
    /// The server has probably accepted the request. Its protocol does not acknowledge.
    case confirmed
    /// The server refused the request with this status of its own protocol, which is not HTTP.
    case refused(status: UInt8)
}

/// The reason why a request got no answer.
public enum RequestFailure: Error, Sendable, Equatable, CustomStringConvertible {
    /// The server refused the stream before it processed the request (REFUSED_STREAM).
    case refusedStream
    /// The server was closing the connection, and does not process this stream.
    case goingAway(reason: String?)
    /// The server ended the stream with this HTTP/2 error code before answering.
    case reset(code: UInt32)
    /// The answer breaks HTTP/2, so that none of it counts (RFC 9113 §8.1.1).
    case malformed
    /// No answer arrived before the request's deadline.
    case timedOut
    /// The connection was lost, and no other request was in flight.
    case connectionLost(String)
    /// The connection was lost while several requests were in flight. Each of them may be the cause.
    case lostWithOthers(String)
    /// The server did not answer a PING with this first request after idleness, because a router or firewall had forgotten the connection.
    case stale(String)
    /// The connection was retired as unresponsive before the request could be written.
    case unresponsive
    /// The request was not sent, because it has exceeded its deadline before on every connection with a free stream.
    case noOtherConnection
    /// The server dropped the request because of an earlier request on the same connection.
    case discarded
    /// The server accepts connections, and closes each at the first notification, without an answer.
    case hungUp

    /// One line for a log or an `error` member.
    public var description: String {
        switch self {
        case .refusedStream: "the server refused the stream (REFUSED_STREAM)"
        case .goingAway(let reason): "the server closed the connection (GOAWAY\(reason.map { ", \($0)" } ?? ""))"
        case .reset(let code): "the server reset the stream with HTTP/2 error code \(code)"
        case .malformed: "the server's answer breaks HTTP/2 (RFC 9113, section 8.1.1)"
        case .timedOut: "no answer in time"
        case .connectionLost(let why), .lostWithOthers(let why), .stale(let why): "the connection was lost: \(why)"
        case .unresponsive: "the connection was retired before the request could be written"
        case .noOtherConnection:
            "the request got no answer in time on any free connection; another connection is opened"
        case .discarded: "the gateway dropped the notification, because an earlier one was invalid"
        case .hungUp: "the gateway closes each connection when a notification is sent"
        }
    }

    /// The failure without its details. The raw value is the code in counters and records.
    public enum Kind: String, CaseIterable, Sendable {
        case refusedStream = "RefusedStream"
        case goingAway = "GoAway"
        case reset = "StreamReset"
        case malformed = "MalformedAnswer"
        case timedOut = "NoAnswer"
        case connectionLost = "ConnectionLost"
        case lostWithOthers = "LostWithOthers"
        case unresponsive = "Unresponsive"
        case noOtherConnection = "NoOtherConnection"
        case discarded = "Discarded"
        case hungUp = "HungUp"

        /// True if APNs may have accepted the notification.
        public var mayBeAccepted: Bool {
            switch self {
            case .refusedStream, .goingAway, .discarded, .noOtherConnection: false
            case .reset, .malformed, .timedOut, .connectionLost, .lostWithOthers, .unresponsive, .hungUp: true
            }
        }
    }

    public var kind: Kind {
        switch self {
        case .refusedStream: .refusedStream
        case .goingAway: .goingAway
        case .reset: .reset
        case .malformed: .malformed
        case .timedOut: .timedOut
        case .connectionLost, .stale: .connectionLost
        case .lostWithOthers: .lostWithOthers
        case .unresponsive: .unresponsive
        case .noOtherConnection: .noOtherConnection
        case .discarded: .discarded
        case .hungUp: .hungUp
        }
    }
}
