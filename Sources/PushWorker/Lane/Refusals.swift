import Logging
import PushQueue

/// The kinds of requests that a reachable Redis refuses now. It may be read-only, busy or out of memory, a key may have another type, or a
/// right may be missing. A refusal ends when a request of its kind gets another answer.
final class Refusals<Request: Hashable> {
    private let lane: LaneContext
    private let logger: Logger
    /// Identifies the problem among those of other queues.
    private let subject: String
    private let words: (Request) -> String
    private var sentences: [Request: String] = [:]

    /// - Parameters:
    ///   - queue: the name of the queue; `nil` for the state that all workers share.
    ///   - logger: the logger of the queue or the lane.
    ///   - words: returns the name of a kind of requests.
    init(_ lane: LaneContext, queue: String? = nil, logger: Logger, words: @escaping (Request) -> String) {
        self.lane = lane
        subject = "refused:\(queue ?? "")"
        self.logger = logger
        self.words = words
    }

    var isEmpty: Bool { sentences.isEmpty }

    var problems: [String] { sentences.values.sorted() }

    /// The problem with a kind of requests, in a sentence; `nil` if they are not refused.
    subscript(_ request: Request) -> String? { sentences[request] }

    /// Records the result of a request. Costs little if nothing is refused.
    func record<Value>(_ request: Request, _ result: Result<Value, QueueFailure>) {
        switch result {
        case .success: recordAcceptance(request)
        case .failure(let failure): recordRefusal(request, failure)
        }
    }

    /// Records a failure if it is an answer. Lost connections are reported elsewhere.
    func recordRefusal(_ request: Request, _ failure: QueueFailure) {
        guard failure.isAnswer else { return }
        let sentence =
            if case .resharding = failure { "\(failure)" } else { "Redis refuses \(words(request)): \(failure)" }
        sentences[request] = sentence
        let form = if case .redis(.server(let error)) = failure { error.prefix } else { "" }
        lane.logOngoing(
            .error, "redis_refused", sentence, of: subject, at: "\(request)", form: form, logger: logger)
    }

    /// Records an answer other than a refusal.
    func recordAcceptance(_ request: Request) {
        guard !sentences.isEmpty, sentences.removeValue(forKey: request) != nil else { return }
        lane.logEnd(
            "redis_accepted", "Redis accepts \(words(request)) again", of: subject, at: "\(request)",
            logger: logger)
    }
}
