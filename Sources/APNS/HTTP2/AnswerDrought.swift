import NIOCore

/// Decides whether a pool's requests go unanswered altogether, without any I/O.
///
/// Only requests that were submitted after the last answer count: a few lost answers of a burst say nothing of what is sent
/// now.
struct AnswerDrought {
    /// How long requests may wait with no answer to any.
    static let patience = TimeAmount.seconds(5)
    /// How long the last finding holds while nothing is sent. It covers the pauses between the first attempts of a job; a
    /// single notification that was lost and not tried again should not count for long.
    static let memory = TimeAmount.minutes(2)
    /// The longest time that counts between two looks: a process that was stopped has not waited.
    private static let longestGap = TimeAmount.seconds(1)

    /// True while nothing that is sent is answered.
    private(set) var isOn = false
    /// True while requests have been submitted and none answered since.
    private(set) var isPending = false

    private var waited = TimeAmount.zero
    private var submitted = 0
    private var answered = false
    private var lastLook = NIODeadline.distantPast
    private var lastActivity = NIODeadline.distantPast

    /// Adds what one connection did since it was last asked.
    mutating func add(submitted: Int, answered: Bool) {
        self.submitted += submitted
        if answered { self.answered = true }
    }

    /// Draws the conclusion from what was added since the last look.
    /// - Parameter inFlight: requests under way.
    mutating func look(inFlight: Int, now: NIODeadline) {
        defer { (submitted, answered, lastLook) = (0, false, now) }
        if answered {
            (isOn, isPending, waited) = (false, false, .zero)
            return
        }
        if submitted > 0 { isPending = true }
        guard isPending else { return }
        guard inFlight > 0 || submitted > 0 else {
            if now - lastActivity >= Self.memory { (isOn, isPending, waited) = (false, false, .zero) }
            return
        }
        lastActivity = now
        if lastLook > .distantPast { waited = waited + min(now - lastLook, Self.longestGap) }
        if waited >= Self.patience { isOn = true }
    }

    /// Records that a connection was retired as unresponsive.
    mutating func foundUnresponsive() {
        if isPending { isOn = true }
    }
}
