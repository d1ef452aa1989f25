import Redis

/// The completion of a call: its value, or the failure.
public typealias Completion<Value> = (Result<Value, QueueFailure>) -> Void

/// The failure of a call to Redis for a queue, or for the state that workers share.
public enum QueueFailure: RedisFailure, Sendable {
    /// Redis could not be reached, did not answer, or answered with an error.
    case redis(RedisError)
    /// The script or command with this name returned an unexpected reply. The server runs another version of the script, or is not Redis.
    case unexpectedReply(String)
    /// The set of invalid tokens was not used, because an operator changes its number of shards or has just changed it.
    case resharding(TokenDivision)

    /// The problem and its place.
    public var description: String {
        switch self {
        case .redis(let error): "\(error)"
        case .unexpectedReply(let call): "Redis gave a reply to `\(call)` that this version does not know"
        case .resharding(let division):
            division.incomplete.map { other in
                "the number of shards of the invalid tokens is being changed; if that was interrupted, "
                    + "`apns-worker invalid reshard --to \(division.shards)` or `--to \(other)` completes it"
            } ?? "the number of shards of the invalid tokens has just been changed; try again"
        }
    }

    /// True if Redis answered; false if it could not be reached or gave no answer.
    public var isAnswer: Bool {
        if case .redis(let error) = self { error.isAnswer } else { true }
    }

    /// True if the failure can pass by itself: Redis is unreachable, loading, full or without a master. False for a
    /// wrong password, a missing permission or a key of another type.
    public var mayPass: Bool {
        switch self {
        case .unexpectedReply, .redis(.authentication), .redis(.commandTooLarge): false
        case .redis(.server(let error)):
            !["WRONGTYPE", "NOPERM", "NOAUTH", "WRONGPASS", "ERR"].contains(error.prefix)
        case .redis, .resharding: true
        }
    }

    /// True if Redis did not execute a call, because some of its keys are on another server already.
    var isOfMove: Bool {
        guard case .redis(.server(let answer)) = self else { return false }
        return answer.prefix == "TRYAGAIN"
    }
}
