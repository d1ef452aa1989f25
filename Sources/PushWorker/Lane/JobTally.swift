import NIOCore
import PushQueue

/// How the notifications of one job have ended, until all have and the job can be settled.
final class JobTally {
    var delivered = 0
    /// The tokens that are not valid any more. They are in the set before the job is settled.
    var invalidTokens: [InvalidToken] = []
    /// Those that were not sent, because their token was in the set already.
    var suppressed = 0
    var expired = 0
    var dropped = 0
    /// Those that are to be sent again because no answer came.
    var unanswered = 0
    /// Those that whoever had the job before may have sent, once for each time that it was taken over unsettled.
    var reclaimed = 0
    /// How many requests may be sent, or were, although APNs may have taken an earlier one.
    var possibleDuplicates: Int { unanswered + reclaimed }
    var invalid: Int { invalidTokens.count }
    private(set) var retry: Retry?
    /// What producers are told when the job is settled.
    var results = PackedResults()
    /// One for each reason.
    private(set) var dead: [Dead] = []

    /// Notifications that are to be sent again.
    struct Retry {
        /// Tokens as text.
        var tokens: [ByteBuffer]
        /// Why, for the last of them.
        var reason: String
        var status: Int?
        /// In how many milliseconds: the longest of their pauses.
        var delay: Int64
        /// Whether any of them spends an attempt.
        var spendsAttempt: Bool
    }

    /// Notifications that will never be delivered, for one reason.
    struct Dead {
        var tokens: [ByteBuffer]
        var reason: String
        /// What the last attempt failed of, where that is not the reason itself.
        var error: String?
        var status: Int?
    }

    /// How many ways of ending there have been, of those that only need counting.
    var kinds: Int {
        endings.reduce(0) { $0 + ($1.count > 0 ? 1 : 0) }
    }

    /// How the only notification of a job has ended.
    var ending: Ending { endings.first { $0.count > 0 }?.ending ?? .dropped }

    /// How many have ended in each way that only needs counting.
    var endings: [(ending: Ending, count: Int)] {
        [
            (.delivered, delivered), (.invalid, invalid), (.suppressed, suppressed), (.expired, expired),
            (.dropped, dropped),
        ]
    }

    func add(retry tokens: [ByteBuffer], reason: String, status: Int?, delay: Int64, spendsAttempt: Bool) {
        guard var retry else {
            retry = Retry(
                tokens: tokens, reason: reason, status: status, delay: delay, spendsAttempt: spendsAttempt)
            return
        }
        retry.tokens += tokens
        retry.reason = reason
        retry.status = status
        retry.delay = max(retry.delay, delay)
        retry.spendsAttempt = retry.spendsAttempt || spendsAttempt
        self.retry = retry
    }

    func add(dead token: ByteBuffer, reason: String, error: String? = nil, status: Int?) {
        if let index = dead.firstIndex(where: { $0.reason == reason }) {
            dead[index].tokens.append(token)
        } else {
            dead.append(Dead(tokens: [token], reason: reason, error: error, status: status))
        }
    }
}
