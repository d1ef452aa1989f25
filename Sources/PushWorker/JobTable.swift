import APNS
import NIOCore
import PushQueue

/// An entry that can stand in a line: it holds the index of the one behind it, -1 at the line's end.
protocol LinkedEntry {
    var next: Int { get set }
}

/// A claimed job while a lane works on it.
struct JobEntry: LinkedEntry {
    /// The claim's number in Redis.
    var claim = 0
    var job: Job?
    /// The index of the app in the lane.
    var app = 0
    /// When the job was first seen, in milliseconds of Redis' clock: durations count from it.
    var firstSeen: Int64 = 0
    var template: NotificationTemplate?
    /// The token of a job with one.
    var deviceToken: DeviceToken?
    /// The id that `apns-id`s are derived from: the job's, or its first claim.
    var identity = ByteBuffer()
    /// Tokens that have not been submitted yet; `nil` for a job with one token.
    var remaining: JobTokens.Iterator?
    /// Notifications whose end is not known yet, the ones that have not been submitted included.
    var open = 0
    /// Notifications that have not been submitted.
    var unsubmitted = 0
    /// The name under which the job was claimed: what was claimed under an earlier one is no longer ours to settle.
    var generation = 0
    /// Whether a drain has left some of its notifications unsent, so that the job has to be given back and not settled.
    var isCutShort = false
    /// The next in the app's line of jobs to be sent; -1 at its end.
    var next = -1
    var readySince = NIODeadline.distantPast
    /// How the job's notifications have ended so far.
    var tally = JobTally()
}

/// What all notifications of a job share.
struct NotificationTemplate {
    var payload: ByteBuffer
    var topic: ByteBuffer
    var pushType: PushType
    var priority: UInt8?
    /// Seconds since 1970.
    var expiration: Int64?
    var collapseID: ByteBuffer?
    /// The job's own, which a job with one token may have.
    var apnsID: APNSID?

    func notification(to token: DeviceToken, id: APNSID) -> Notification {
        Notification(
            deviceToken: token, payload: payload, topic: topic, pushType: pushType, priority: priority,
            expiration: expiration, collapseID: collapseID, apnsID: id)
    }
}

/// A notification that is under way, or is waiting to be sent again at once.
struct FlightEntry: LinkedEntry {
    /// The index of its job.
    var job = -1
    var deviceToken: DeviceToken?
    var apnsID = APNSID(high: 0, low: 0)
    /// How often it was sent again without spending an attempt.
    var resends: UInt8 = 0
    /// Whether it was already sent again because of an expired provider token.
    var isRenewed = false
    /// Whether it is the probe of an open breaker.
    var isProbe = false
    /// The provider token that it was sent with.
    var providerToken: ProviderToken?
    /// The next in the app's line of resends; -1 at its end.
    var next = -1
}

/// Entries at indices that stay theirs until they are released.
struct EntryTable<Entry> {
    private(set) var count = 0
    private var entries: ContiguousArray<Entry> = []
    private var free: ContiguousArray<Int> = []

    subscript(index: Int) -> Entry {
        _read { yield entries[index] }
        _modify { yield &entries[index] }
    }

    mutating func insert(_ entry: Entry) -> Int {
        count += 1
        if let index = free.popLast() {
            entries[index] = entry
            return index
        }
        entries.append(entry)
        return entries.count - 1
    }

    /// - Parameter empty: what to leave in its place, so that nothing is held any longer.
    mutating func release(_ index: Int, leaving empty: Entry) {
        count -= 1
        entries[index] = empty
        free.append(index)
    }
}

/// Indices in a line, each entry holding the one behind it.
struct EntryQueue {
    private(set) var head = -1
    private(set) var count = 0
    private var tail = -1

    var isEmpty: Bool { head < 0 }

    mutating func append(_ index: Int, in table: inout EntryTable<some LinkedEntry>) {
        table[index].next = -1
        if tail >= 0 { table[tail].next = index } else { head = index }
        tail = index
        count += 1
    }

    mutating func removeFirst(in table: inout EntryTable<some LinkedEntry>) -> Int? {
        guard head >= 0 else { return nil }
        let index = head
        head = table[index].next
        if head < 0 { tail = -1 }
        count -= 1
        return index
    }
}
