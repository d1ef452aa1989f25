import NIOCore
import NIOPosix
import Sockets

public struct RedisServerError: Error, Sendable, Equatable, CustomStringConvertible {
    /// The first word if it is in capitals (`ERR`, `NOSCRIPT`, `READONLY`, `MOVED`); empty otherwise.
    public let prefix: String
    /// The whole text of the error, including the prefix.
    public let message: String

    public init(text: String) {
        // Redis repeats the arguments of unknown commands, which may be payloads or a password.
        let end = text.firstRange(of: ", with args beginning with:")?.lowerBound ?? text.endIndex
        message = String(Self.refusal(ofScript: text) ?? Self.withoutPlace(text[..<end]))
        let word = message.prefix { $0 != " " }
        prefix = word.utf8.allSatisfy { (0x41...0x5a).contains($0) || $0 == UInt8(ascii: "_") } ? String(word) : ""
    }

    public var description: String { message }

    /// The step that an operator can take; `nil` if none is known. It follows the message and a colon.
    public var advice: String? {
        let isRefusedAtAccept = message.contains("max number of clients")
        return switch prefix {
        case "OOM": "Redis is full: raise its maxmemory, or let workers drain the queues"
        case "MOVED": "the server is a node of a Cluster: begin the Redis URL with redis+cluster://"
        case "READONLY": "name the master in the Redis URL, or its Sentinels (redis+sentinel://)"
        case "MISCONF": "see the Redis log and INFO persistence for the reason"
        case "NOREPLICAS": "bring replicas back until min-replicas-to-write is met; INFO replication lists them"
        case "LOADING": "wait until Redis has loaded its data"
        case "BUSY": "end the script that keeps Redis busy: SCRIPT KILL"
        case "MASTERDOWN", "CLUSTERDOWN": "bring the masters back"
        case "NOPERM": "give the Redis user this permission: docs/redis.md lists the commands and keys"
        case "DENIED": "Redis is in protected mode: set a password, or bind it to an address that only its users reach"
        case "WRONGTYPE": "rename or delete that key"
        case _ where isRefusedAtAccept: "raise maxclients, or end clients that are not used; CLIENT LIST names them"
        case _ where message.contains("cluster is down"): "bring the masters back"
        case _ where message.lowercased().contains("unknown command") || message.contains("Unknown Redis command"):
            "enable EVAL, EVALSHA, TIME and the other commands of docs/redis.md, under their own names"
        default: nil
        }
    }

    /// Removes the digest and the line of the script, which Redis 7 and later append:
    /// ` script: <40 hex digits>, on @user_script:242.`, in Valkey 9 without the digest.
    private static func withoutPlace(_ text: Substring) -> Substring {
        guard let start = text.ranges(of: " script: ").last else { return text }
        var place = text[start.upperBound...]
        let digest = place.prefix { $0.isHexDigit }
        if digest.utf8.count == 40 { place = place[digest.endIndex...].trimmingPrefix(", ") }
        return place.hasPrefix("on @user_script:") ? text[..<start.lowerBound] : text
    }

    /// Returns the reason why a script may not write. Before Redis 7, the reason follows the script's position: `ERR Error running script
    /// (call to f_…): @user_script:7: @user_script: 7: -READONLY You can't write …`. Errors of commands that were executed have no hyphen
    /// there.
    private static func refusal(ofScript text: String) -> Substring? {
        guard text.hasPrefix("ERR Error running script"), let place = text.firstRange(of: ": -") else { return nil }
        let refusal = text[place.upperBound...]
        guard refusal.first?.isUppercase == true else { return nil }
        return refusal.lastIndex { $0 != " " }.map { refusal[...$0] }
    }
}

/// A failure of a request to Redis, whichever part has reported it.
public protocol RedisFailure: Error, CustomStringConvertible {}

/// An error between the client and Redis. Messages never contain a password, a key or a payload.
public enum RedisError: RedisFailure, Sendable, Equatable {
    /// There is no connection; the command was not sent.
    case notConnected(address: String, reason: String)
    /// The connection was lost before the answer. If `sent` is true, the command may have been executed.
    case connectionLost(address: String, sent: Bool, reason: String)
    /// No answer arrived in time; the connection was closed, and the command may have been executed.
    case timeout(address: String, after: TimeAmount)
    case server(RedisServerError)
    /// The peer does not follow the Redis protocol; the command may have been executed.
    case protocolViolation(address: String, reason: String)
    /// Redis refused the user or the password, or requires one. `source` names the settings that contain them.
    case authentication(address: String, reply: RedisServerError, source: String)
    /// No connection could be made.
    case connect(address: String, reason: String)
    /// The command is larger than Redis accepts; it was not sent.
    case commandTooLarge(bytes: Int, limit: Int)

    /// True if the command may have been executed although there was no answer.
    public var mayHaveBeenExecuted: Bool {
        switch self {
        case .connectionLost(_, let sent, _): sent
        case .timeout, .protocolViolation: true
        case .notConnected, .server, .authentication, .connect, .commandTooLarge: false
        }
    }

    /// True if the server answered, and refused.
    public var isAnswer: Bool {
        if case .server = self { true } else { false }
    }

    /// The problem, the server and the remedy.
    public var description: String {
        switch self {
        case .notConnected(let address, let reason):
            "not connected to Redis at \(address): \(reason)"
        case .connectionLost(let address, let sent, let reason):
            "the connection to Redis at \(address) was lost: \(reason) ("
                + (sent ? "the command may have been executed)" : "the command was not sent)")
        case .timeout(let address, let after):
            "Redis at \(address) did not answer within \(after.formatted): "
                + "check that it is not stalled, overloaded or cut off by the network"
        case .server(let error):
            "Redis answered: "
                + (error.advice.map {
                    "\(error.message.hasSuffix(".") ? String(error.message.dropLast()) : error.message): \($0)"
                } ?? error.message)
        case .protocolViolation(let address, let reason):
            "the server at \(address) broke the Redis protocol (\(reason)): "
                + "check that it is a Redis server, and that the URL has the right scheme: redis://, or rediss:// for TLS"
        case .authentication(let address, let reply, let source):
            "Redis at \(address) refused the login: \(reply.message): check \(source) and the server's ACL"
        case .connect(let address, let reason):
            "cannot connect to Redis at \(address): \(reason)"
        case .commandTooLarge(let bytes, let limit):
            "a Redis command of \(bytes) bytes is larger than the \(limit) bytes that can be sent"
        }
    }

    /// The part of `description` about the connection. Callers learn separately whether their commands were lost.
    public var headline: String {
        switch self {
        case .connectionLost(let address, _, let reason): "the connection to Redis at \(address) was lost: \(reason)"
        case .server(let error): "another Redis server must be found: \(error.message)"
        default: description
        }
    }

    /// The address and the reason, for a list of several errors.
    var shortText: String {
        switch self {
        case .connect(let address, let reason), .connectionLost(let address, _, let reason),
            .notConnected(let address, let reason), .protocolViolation(let address, let reason):
            "\(address): \(reason)"
        case .timeout(let address, let after): "\(address): no answer within \(after.formatted)"
        case .authentication, .server, .commandTooLarge: description
        }
    }

    /// Returns the reason for a network error, with advice if there is any.
    static func reason(of error: any Error) -> String {
        if let shortage = ConnectFailure.shortage(error) { return shortage }
        let reason = ConnectFailure.firstReason(error)
        return switch (error as? NIOConnectionError)?.connectionErrors.first?.error ?? error {
        case is NIOConnectionError: "\(reason); check it and the DNS"
        case ChannelError.connectTimeout: "\(reason); check the address and any firewall"
        default: reason
        }
    }
}
