import NIOCore
import Sockets

/// The health of the path to APNs: of a pool, and of each of its connections. No I/O.
///
/// The types below answer three questions. Does a connection still answer (``Responsiveness``)? Do any of the pool's connections answer
/// (``AnswerDrought``)? Which connection did not answer a request (``UnansweredRequests``)? ``PeerLiveness`` decides if the server of a
/// connection reads at all.
struct PathHealth {
    /// A request older than this should have been written.
    private static let roundTrip = TimeAmount.milliseconds(500)

    private var drought = AnswerDrought()
    private var unanswered = UnansweredRequests()

    var state: AnswerDrought.State { drought.state }

    /// True if there are requests that must avoid a connection.
    var hasUnanswered: Bool { !unanswered.isEmpty }

    /// Records the requests and answers of a connection since the last call.
    mutating func record(_ connection: HTTP2Connection, now: NIODeadline) {
        let (submitted, answered) = connection.record.responsiveness.look(
            requests: connection.state.requests, answers: connection.state.answers, now: now)
        drought.add(submitted: submitted, answered: answered)
        if answered { connection.record.isSuspect = false }
    }

    /// Records if a flow-control window blocks a connection's requests.
    /// - Parameter patience: the time for which a request may be blocked without progress.
    func recordWindow(
        of connection: HTTP2Connection, patience: TimeAmount, requestTimeout: TimeAmount, now: NIODeadline
    ) {
        guard connection.isUsable else { return }
        let limit = now + requestTimeout - Self.roundTrip
        connection.record.responsiveness.look(
            connection.session.blockage(dueBefore: limit), patience: patience, now: now)
    }

    /// Records a request that a connection refused, or did not answer by its deadline.
    mutating func recordMissing(
        _ id: APNSID?, on connection: HTTP2Connection, deadline: NIODeadline, timeout: TimeAmount, isRefusal: Bool
    ) {
        // A connection that accepts no more requests need not be avoided.
        guard connection.isUsable else { return }
        if let id { unanswered.insert(id, connection: connection.id, isRefusal: isRefusal) }
        guard !isRefusal else { return }
        connection.record.responsiveness.missedDeadline(submitted: deadline - timeout, timeout: timeout)
    }

    /// Records that a connection is retired as unresponsive.
    /// - Parameter all: all connections of the pool.
    /// - Returns: true if there must be a pause before the next connection, because no other connection is answered either.
    mutating func recordUnresponsive(among all: [HTTP2Connection]) -> Bool {
        defer { drought.foundUnresponsive() }
        guard drought.isPending else { return false }
        for other in all { (other.record.hasAnswered, other.record.staleAnswers) = (false, other.state.answers) }
        return true
    }

    mutating func recordEnd(of connection: HTTP2Connection, now: NIODeadline) {
        record(connection, now: now)
        unanswered.forget(connection: connection.id)
    }

    /// Decides if an ``AnswerDrought`` has begun. New connections are then preferred to the present ones, so that further requests need not
    /// wait for the deadlines of earlier ones.
    /// - Returns: true if a drought has begun.
    mutating func check(_ connections: [HTTP2Connection], inFlight: Int, now: NIODeadline) -> Bool {
        let before = drought.state
        drought.look(inFlight: inFlight, now: now)
        guard before == .answered, drought.state == .unanswered else { return false }
        for connection in connections { connection.record.isSuspect = true }
        return true
    }

    mutating func stoodStill(for time: TimeAmount, now: NIODeadline) { drought.stoodStill(for: time, now: now) }

    /// Chooses the connection for a request that may have gone unanswered before.
    /// - Returns: the least busy connection, preferably one that has not refused the request. If the request has timed out on all
    ///   connections, one of them, as `excluded`.
    func choose(
        from connections: [HTTP2Connection], for id: APNSID
    ) -> (best: HTTP2Connection?, excluded: HTTP2Connection?) {
        var best: HTTP2Connection?
        var bestPast = UnansweredRequests.Past.timedOut
        var excluded: HTTP2Connection?
        for connection in connections where connection.state.freeStreams > 0 {
            let past = unanswered.past(of: id, on: connection.id)
            if past == .timedOut {
                excluded = connection
            } else if past < bestPast || past == bestPast && connection.preference > best?.preference ?? 0 {
                (best, bestPast) = (connection, past)
            }
        }
        return (best, excluded)
    }
}

/// Decides if all of a pool's requests go unanswered.
///
/// Only requests submitted after the last answer count. If some answers of an earlier burst are lost, that shows nothing about requests
/// sent now.
struct AnswerDrought {
    enum State {
        /// Requests are answered, or nothing is known.
        case answered
        /// No request is answered, although connections can be made.
        case unanswered
        /// The last requests were not answered, and no request has been sent for a while.
        case unansweredLately
    }

    /// Requests may wait for this time while none is answered.
    static let patience = TimeAmount.seconds(5)
    /// The state stays ``State/unanswered`` for this time after the last request. After that, other
    /// workers may already send successfully.
    static let currency = TimeAmount.seconds(15)
    /// After ``currency``, the state stays ``State/unansweredLately`` for this time, because a pause is not a recovery.
    static let memory = TimeAmount.minutes(10)
    private(set) var state = State.answered
    /// True if requests have been submitted since the last answer.
    private(set) var isPending = false

    private var waited = TimeAmount.zero
    private var submitted = 0
    private var answered = false
    private var lastLook = NIODeadline.distantPast
    private var lastActivity = NIODeadline.distantPast

    /// Adds a connection's activity since the last ``look(inFlight:now:)``.
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

    /// Records that the process did not run for some time, so that the requests did not wait.
    mutating func stoodStill(for time: TimeAmount, now: NIODeadline) { lastLook = lastLook.moved(by: time, now: now) }

    /// Records that a connection was retired as unresponsive.
    mutating func foundUnresponsive() {
        if isPending { state = .unanswered }
    }

    private mutating func end() { (state, isPending, waited) = (.answered, false, .zero) }
}

/// The requests that connections did not answer, so that they are resent on others.
///
/// A request is identified by its `apns-id`, which is the same at each attempt. The newest requests replace the oldest.
struct UnansweredRequests {
    /// The number of requests that are kept.
    static let capacity = 256

    private struct Entry {
        var id: APNSID
        var connection: Int
        var isRefusal: Bool
    }

    private var entries: [Entry] = []
    private var oldest = 0

    var isEmpty: Bool { entries.isEmpty }

    /// - Parameters:
    ///   - connection: the identifier of the connection that did not answer.
    ///   - isRefusal: true if the connection refused the request at once. The request may be resent on it if there is no other connection.
    mutating func insert(_ id: APNSID, connection: Int, isRefusal: Bool) {
        let entry = Entry(id: id, connection: connection, isRefusal: isRefusal)
        guard entries.count == Self.capacity else { return entries.append(entry) }
        entries[oldest] = entry
        oldest = (oldest + 1) % Self.capacity
    }

    /// The past of a request on a connection; the worst is the greatest.
    enum Past: Comparable {
        case none, refused, timedOut
    }

    /// Returns the worst past of a request on a connection.
    func past(of id: APNSID, on connection: Int) -> Past {
        var past = Past.none
        for entry in entries where entry.id == id && entry.connection == connection {
            past = max(past, entry.isRefusal ? .refused : .timedOut)
        }
        return past
    }

    /// Removes the entries of a closed connection.
    mutating func forget(connection: Int) {
        guard entries.contains(where: { $0.connection == connection }) else { return }
        // Brings the oldest entry to the front first.
        entries = (entries[oldest...] + entries[..<oldest]).filter { $0.connection != connection }
        oldest = 0
    }
}
