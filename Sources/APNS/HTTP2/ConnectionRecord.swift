import NIOCore
import Sockets

/// A ``ConnectionPool``'s record of a connection, in addition to its ``PoolMembership``.
struct ConnectionRecord {
    enum Authorization {
        /// The pool's current authorization.
        case current
        /// The authorization that was current when the connection's replacement was decided.
        case kept(HeaderText?)
    }

    /// True if the connection has answered since it was made, and since the last pause because of unanswered requests.
    var hasAnswered = false
    /// The number of the connection's answers before the last pause because of unanswered requests.
    var staleAnswers = 0
    /// True from the beginning of an ``AnswerDrought`` until the connection answers again. In that time, the connection gets requests only
    /// if no other one can accept them.
    var isSuspect = false
    var responsiveness = Responsiveness()
    var authorization = Authorization.current

    func authorization(current: HeaderText?) -> HeaderText? {
        switch authorization {
        case .current: current
        case .kept(let authorization): authorization
        }
    }
}

/// Decides whether a connection that is alive is still useful.
///
/// A load balancer in front of a dead backend answers PINGs, so it looks alive forever. Only requests show the problem: they are not
/// answered, or cannot be written.
struct Responsiveness {
    /// A connection is unresponsive after this many missed deadlines without an answer between them.
    static let limit = 3

    /// The number of requests that have exceeded their deadline since the last answer.
    private(set) var missed = 0
    /// The reason to retire the connection, if there is one.
    private(set) var fault: String?

    private var requests = 0
    private var answers = 0
    /// The time of the last answer, rounded up to the next call of ``look(requests:answers:now:)``.
    private var lastAnswer = NIODeadline.distantPast
    private var blockage: Blockage?
    private var blockedSince = NIODeadline.distantPast

    /// Records the connection's requests and answers so far.
    /// - Parameters:
    ///   - requests: the total number of submitted requests.
    ///   - answers: the total number of answers.
    /// - Returns: the requests since the last call, and true if there was an answer since.
    mutating func look(requests: Int, answers: Int, now: NIODeadline) -> (submitted: Int, answered: Bool) {
        let submitted = requests - self.requests
        let answered = answers != self.answers
        (self.requests, self.answers) = (requests, answers)
        if answered {
            missed = 0
            lastAnswer = now
        }
        return (submitted, answered)
    }

    /// Records that a request exceeded its deadline.
    /// - Parameters:
    ///   - submitted: the time when it was submitted.
    ///   - timeout: the time between submission and deadline.
    mutating func missedDeadline(submitted: NIODeadline, timeout: TimeAmount) {
        missed += 1
        guard fault == nil else { return }
        if submitted >= lastAnswer {
            fault = "no request was answered for \(timeout.formatted)"
        } else if missed >= Self.limit {
            fault = "\(missed) requests in a row were not answered within \(timeout.formatted)"
        }
    }

    mutating func stoodStill(for time: TimeAmount, now: NIODeadline) {
        lastAnswer = lastAnswer.moved(by: time, now: now)
        blockedSince = blockedSince.moved(by: time, now: now)
    }

    /// Records if a flow-control window blocks a request.
    /// - Parameter patience: the time for which it may be blocked without progress.
    mutating func look(_ blockage: Blockage?, patience: TimeAmount, now: NIODeadline) {
        guard let blockage, blockage == self.blockage else {
            (self.blockage, blockedSince) = (blockage, now)
            return
        }
        guard fault == nil, now - blockedSince >= patience else { return }
        fault = "it has granted no flow-control window for \(patience.formatted)"
    }
}
