import APNS
import NIOCore

/// The notifications of an app that are not in flight. No I/O.
struct SendLine {
    /// Jobs with notifications that have not been submitted.
    var ready = ReadyLine()
    /// Notifications to resend at once, by ``Isolation``; see ``gatherResends(in:)``.
    var resends = [Line<FlightID>](repeating: Line(), count: Isolation.allCases.count)
    /// Notifications that a shared connection has just returned, in the order of their submission.
    private var returned = Line<FlightID>()
    /// The time of the last progress of isolated notifications.
    var isolatedMoved = NIODeadline.distantPast
    /// The number of unsubmitted notifications of accepted jobs, including those whose tokens are being looked up.
    var unsubmitted = 0
    var pace = EndPace()

    var isEmpty: Bool { ready.isEmpty && resendCount == 0 && isolatedCount == 0 }

    /// The number of notifications to resend over shared connections.
    var resendCount: Int { resends[0].count + returned.count }

    /// The number of notifications that wait to be sent over other connections.
    var isolatedCount: Int { resends[1].count + resends[2].count }

    var count: Int { unsubmitted + resendCount + isolatedCount }

    mutating func sendAgain(_ flight: FlightID, in table: Table<FlightID, InFlight>, now: NIODeadline) {
        let isolation = table[flight].isolation
        guard isolation != .shared else { return returned.append(flight, in: table) }
        if isolatedCount == 0 { isolatedMoved = now }
        resends[isolation.rawValue].append(flight, in: table)
    }

    /// Moves returned notifications to the front of the resends, because they were sent before those that wait there.
    mutating func gatherResends(in table: Table<FlightID, InFlight>) {
        guard !returned.isEmpty else { return }
        resends[0].prepend(contentsOf: returned, in: table)
        returned = Line()
    }
}

/// Jobs of an app that wait to be submitted. Jobs that have failed get one turn in eight, as in a claim. Jobs that fail again and again
/// must not delay the others.
struct ReadyLine {
    private(set) var fresh = Line<JobID>()
    private(set) var failed = Line<JobID>()
    private var turn = 0

    var isEmpty: Bool { fresh.isEmpty && failed.isEmpty }
    var count: Int { fresh.count + failed.count }

    private var takesFailed: Bool { !failed.isEmpty && (fresh.isEmpty || turn & 7 == 7) }

    mutating func removeFirst(in jobs: Table<JobID, ActiveJob>) -> JobID? {
        defer { turn &+= 1 }
        return takesFailed ? failed.removeFirst(in: jobs) : fresh.removeFirst(in: jobs)
    }

    mutating func append(_ id: JobID, in jobs: Table<JobID, ActiveJob>) {
        jobs[id].isFresh ? fresh.append(id, in: jobs) : failed.append(id, in: jobs)
    }

    mutating func prepend(_ id: JobID, in jobs: Table<JobID, ActiveJob>) {
        jobs[id].isFresh ? fresh.prepend(id, in: jobs) : failed.prepend(id, in: jobs)
    }

    mutating func remove(_ id: JobID, in jobs: Table<JobID, ActiveJob>) {
        jobs[id].isFresh ? fresh.remove(id, in: jobs) : failed.remove(id, in: jobs)
    }
}

/// Measures how fast notifications end. Jobs that will soon get a stream are claimed ahead, so that no stream waits for Redis.
struct EndPace {
    /// As many notifications are claimed ahead as end within this time.
    private static let horizon = TimeAmount.milliseconds(20)
    private static let maximum = 512

    /// The number of notifications to claim ahead.
    private(set) var ahead = 0
    private var ended = 0
    private var since = NIODeadline.distantPast

    mutating func recordEnd() { ended += 1 }

    /// Measures the pace since the last call. Called in each tick.
    mutating func measure(now: NIODeadline) {
        let elapsed = Int(max(1, (now - since).nanoseconds))
        ahead = min(Self.maximum, ended * Int(Self.horizon.nanoseconds) / elapsed)
        (ended, since) = (0, now)
    }
}
