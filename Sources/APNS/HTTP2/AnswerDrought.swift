import NIOCore
import Sockets

/// Decides whether all of a pool's requests go unanswered, without any I/O.
///
/// Only requests submitted after the last answer count: a few lost answers of a burst say nothing about requests sent
/// now.
struct AnswerDrought {
    enum State {
        /// Requests are answered, or nothing is known.
        case answered
        /// No request is answered, although connections can be made.
        case unanswered
        /// The last requests were not answered, and none has been sent for a while.
        case unansweredLately
    }

    /// The time for which requests may wait while none is answered.
    static let patience = TimeAmount.seconds(5)
    /// The time after the last request for which the state stays at ``State/unanswered``. After that, other
    /// workers may be sending successfully what failed here.
    static let currency = TimeAmount.seconds(15)
    /// The time for which it then stays at ``State/unansweredLately``, so that pauses between attempts do not
    /// look like a recovery.
    static let memory = TimeAmount.minutes(10)
    private(set) var state = State.answered
    /// True while requests have been submitted since the last answer, and none has been answered.
    private(set) var isPending = false

    private var waited = TimeAmount.zero
    private var submitted = 0
    private var answered = false
    private var lastLook = NIODeadline.distantPast
    private var lastActivity = NIODeadline.distantPast

    /// Adds the activity of one connection since it was last asked.
    mutating func add(submitted: Int, answered: Bool) {
        self.submitted += submitted
        if answered { self.answered = true }
    }

    /// Updates the state from the activity added since the last call.
    /// - Parameter inFlight: requests in flight.
    mutating func look(inFlight: Int, now: NIODeadline) {
        defer { (submitted, answered, lastLook) = (0, false, now) }
        if answered { return end() }
        if submitted > 0 { isPending = true }
        guard isPending else { return }
        guard inFlight > 0 || submitted > 0 else {
            if state == .unanswered, now - lastActivity >= Self.currency { state = .unansweredLately }
            if now - lastActivity >= Self.memory { end() }
            return
        }
        lastActivity = now
        if lastLook > .distantPast { waited = waited + (now - lastLook) }
        if waited >= Self.patience { state = .unanswered }
    }

    /// Records that the process did not run for some time, in which it has not waited.
    mutating func stoodStill(for time: TimeAmount, now: NIODeadline) { lastLook = lastLook.moved(by: time, now: now) }

    /// Records that a connection was retired as unresponsive.
    mutating func foundUnresponsive() {
        if isPending { state = .unanswered }
    }

    private mutating func end() { (state, isPending, waited) = (.answered, false, .zero) }
}
