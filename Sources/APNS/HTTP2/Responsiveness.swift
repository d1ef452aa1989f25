import NIOCore
import Sockets

/// Decides whether a connection that is alive is still useful, without any I/O.
///
/// A load balancer that answers PINGs in front of a dead backend looks alive forever. Only its requests show that it is
/// not: they are not answered, or cannot be written.
struct Responsiveness {
    /// The number of missed deadlines with no answer between them that makes a connection unresponsive.
    static let limit = 3

    /// Requests that have exceeded their deadline since the last answer.
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
    ///   - submitted: when it was submitted.
    ///   - timeout: the time that it had.
    mutating func missedDeadline(submitted: NIODeadline, timeout: TimeAmount) {
        missed += 1
        guard fault == nil else { return }
        if submitted >= lastAnswer {
            fault = "no request was answered for \(timeout.formatted)"
        } else if missed >= Self.limit {
            fault = "\(missed) requests in a row were not answered within \(timeout.formatted)"
        }
    }

    /// Records that the process did not run for some time.
    mutating func stoodStill(for time: TimeAmount, now: NIODeadline) {
        lastAnswer = lastAnswer.moved(by: time, now: now)
        blockedSince = blockedSince.moved(by: time, now: now)
    }

    /// Records whether a flow-control window blocks a request.
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
