import NIOCore

/// An error reply of the server.
public struct RedisServerError: Error, Sendable, Equatable, CustomStringConvertible {
    /// The first word when it is in capitals (`ERR`, `NOSCRIPT`, `READONLY`, `MOVED`), else empty.
    public let prefix: String
    /// The whole text of the error, the prefix included.
    public let message: String

    /// Takes the error apart.
    public init(text: String) {
        // Redis repeats the arguments of a command it does not know, and those are payloads or a password.
        let end = text.firstRange(of: ", with args beginning with:")?.lowerBound ?? text.endIndex
        let whole = Self.refusal(ofScript: text) ?? text[..<end]
        let word = whole.prefix { $0 != " " }
        prefix = word.utf8.allSatisfy { (0x41...0x5a).contains($0) || $0 == UInt8(ascii: "_") } ? String(word) : ""
        message = String(Self.withoutPlaceInScript(whole, prefix: prefix))
    }

    /// The text of the error.
    public var description: String { message }

    /// From Redis 7 on, the place in the script where a command was refused follows: `OOM command not allowed … script:
    /// <digest>, on @user_script:242.` It says nothing of why; but of an error in the script itself it is the best clue.
    private static func withoutPlaceInScript(_ text: Substring, prefix: String) -> Substring {
        guard prefix != "ERR", let place = text.firstRange(of: " script: "),
            text[place.upperBound...].contains("user_script:")
        else { return text }
        return text[..<place.lowerBound]
    }

    /// Before Redis 7, why a script may not write stands behind the place where it was about to:
    /// `ERR Error running script (call to f_…): @user_script:7: @user_script: 7: -READONLY You can't write …`. An error of
    /// a command that was executed has no hyphen there.
    private static func refusal(ofScript text: String) -> Substring? {
        guard text.hasPrefix("ERR Error running script"), let place = text.firstRange(of: ": -") else { return nil }
        let refusal = text[place.upperBound...]
        guard refusal.first?.isUppercase == true else { return nil }
        return refusal.lastIndex { $0 != " " }.map { refusal[...$0] }
    }
}

/// What can go wrong between us and Redis. No message holds a password, a key or a payload.
public enum RedisError: Error, Sendable, Equatable, CustomStringConvertible {
    /// There is no connection now; the command was not sent.
    case notConnected(address: String, reason: String)
    /// The connection went away before the answer came. `sent`: the command may have been executed; else it was not.
    case connectionLost(address: String, sent: Bool, reason: String)
    /// No answer came in time; the connection was given up, and the command may have been executed.
    case timeout(address: String, after: TimeAmount)
    /// Redis answered with an error.
    case server(RedisServerError)
    /// The peer does not speak the Redis protocol, or broke it; the command may have been executed.
    case protocolViolation(address: String, reason: String)
    /// Redis refused the user or the password, or wants one.
    case authentication(address: String, reply: RedisServerError)
    /// No connection could be made.
    case connect(address: String, reason: String)
    /// The command is larger than Redis takes; it was not sent.
    case commandTooLarge(bytes: Int)

    /// Whether the command may have taken effect although no answer came.
    public var mayHaveBeenExecuted: Bool {
        switch self {
        case .connectionLost(_, let sent, _): sent
        case .timeout, .protocolViolation: true
        case .notConnected, .server, .authentication, .connect, .commandTooLarge: false
        }
    }

    /// Whether the server answered, and refused.
    public var isAnswer: Bool {
        if case .server = self { true } else { false }
    }

    /// What is wrong, where, and what to do.
    public var description: String {
        switch self {
        case .notConnected(let address, let reason):
            "not connected to Redis at \(address): \(reason)"
        case .connectionLost(let address, let sent, let reason):
            "the connection to Redis at \(address) was lost: \(reason) ("
                + (sent ? "the command may have been executed)" : "the command was not sent)")
        case .timeout(let address, let after):
            "Redis at \(address) did not answer within \(after.inWords): "
                + "check that it is not stalled, overloaded or cut off by the network"
        case .server(let error):
            "Redis answered: \(error.message)"
        case .protocolViolation(let address, let reason):
            "what listens at \(address) broke the Redis protocol (\(reason)): "
                + "check that it is a Redis server, and redis:// against rediss:// (TLS)"
        case .authentication(let address, let reply):
            "Redis at \(address) refused the login: \(reply.message): "
                + "check the user and the password in the Redis URL and the server's ACL"
        case .connect(let address, let reason):
            "cannot connect to Redis at \(address): \(reason)"
        case .commandTooLarge(let bytes):
            "a Redis command of \(bytes) bytes is larger than the \(RedisCommand.maximumSize) bytes that can be sent"
        }
    }
}

extension TimeAmount {
    /// For people: `5 s`, `250 ms`.
    var inWords: String {
        nanoseconds % 1_000_000_000 == 0 ? "\(nanoseconds / 1_000_000_000) s" : "\(nanoseconds / 1_000_000) ms"
    }
}
