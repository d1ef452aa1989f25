import ArgumentParser
import FoundationEssentials
import Glibc
import PushWorker

/// What a process did and what it cost, as JSON.
struct Account: Encodable {
    var claimedJobs: Int
    var submitted: Int
    var delivered: Int
    var invalid: Int
    var suppressed: Int
    var expired: Int
    var dropped: Int
    var retried: Int
    var parked: Int
    var scheduled: Int
    var resent: Int
    var dead: Int
    var duplicates: Int
    var possibleDuplicates: Int
    var lostClaims: Int
    /// Microseconds of the process' CPU time, user and system.
    var cpuMicroseconds: Int
    /// The most memory it has had, in KiB.
    var peakMemoryKiB: Int

    init(counters: LaneCounters) {
        claimedJobs = counters.claimedJobs
        submitted = counters.submitted
        delivered = counters.delivered
        invalid = counters.invalid
        suppressed = counters.suppressed
        expired = counters.expired
        dropped = counters.dropped
        retried = counters.retried
        parked = counters.parked
        scheduled = counters.scheduled
        resent = counters.resent
        dead = counters.dead
        duplicates = counters.duplicates
        possibleDuplicates = counters.possibleDuplicates
        lostClaims = counters.lostClaims
        var usage = rusage()
        getrusage(__rusage_who_t(RUSAGE_SELF.rawValue), &usage)
        cpuMicroseconds =
            (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1_000_000
            + Int(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec)
        peakMemoryKiB = usage.ru_maxrss
    }

    func write(to path: String) throws {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .prettyPrinted]
        do {
            try encoder.encode(self).write(to: URL(filePath: path))
        } catch {
            throw ValidationError("cannot write the account to \(path): \(error)")
        }
    }
}
