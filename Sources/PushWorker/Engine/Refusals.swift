import Logging
import PushQueue

/// The kinds of requests that a reachable Redis refuses now: it is read-only, busy or out of memory, a key has another
/// type, or the user lacks a right. A refusal ends with the next other answer to a request of its kind.
final class Refusals<Request: Hashable & CustomStringConvertible> {
    private let lane: LaneContext
    private let logger: Logger
    private let owner: String
    private var sentences: [Request: String] = [:]

    /// - Parameters:
    ///   - owner: what the requests are about, in words.
    ///   - logger: its logger.
    init(_ lane: LaneContext, of owner: String, logger: Logger) {
        self.lane = lane
        self.owner = owner
        self.logger = logger
    }

    /// True if nothing is refused.
    var isEmpty: Bool { sentences.isEmpty }

    /// The problems, a sentence each, sorted.
    var problems: [String] { sentences.values.sorted() }

    /// The problem with a kind of requests, in a sentence; `nil` if they are not refused.
    subscript(_ request: Request) -> String? { sentences[request] }

    /// Records an answer, or that there was none. Cheap if nothing is refused.
    func note<Value>(_ request: Request, _ result: Result<Value, QueueConnection.Failure>) {
        switch result {
        case .success: accepted(request)
        case .failure(let failure): refused(request, failure)
        }
    }

    /// Records a failure if it is an answer. Lost connections are reported elsewhere.
    func refused(_ request: Request, _ failure: QueueConnection.Failure) {
        guard failure.isAnswer else { return }
        let sentence = "Redis refuses \(request) of \(owner): \(failure)"
        sentences[request] = sentence
        let form = if case .redis(.server(let error)) = failure { error.prefix } else { "" }
        lane.logOngoing(
            .error, "redis_refused", sentence, of: "refused:\(owner)", at: "\(request)", form: form, logger: logger)
    }

    /// Records that what was refused need not be done any more.
    func forget() { for request in sentences.keys { accepted(request) } }

    /// Records an answer other than a refusal.
    func accepted(_ request: Request) {
        guard !sentences.isEmpty, sentences.removeValue(forKey: request) != nil else { return }
        lane.logEnd(
            "redis_accepted", "Redis accepts \(request) of \(owner) again", of: "refused:\(owner)", at: "\(request)",
            logger: logger)
    }
}
