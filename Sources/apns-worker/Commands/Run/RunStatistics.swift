import ArgumentParser
import FoundationEssentials
import Glibc
import PushWorker

/// The work and the resource usage of a process, as JSON.
struct RunStatistics: Encodable {
    var claimedJobs: Int
    var submitted: Int
    var delivered: Int
    var invalidToken: Int
    var suppressed: Int
    var expired: Int
    var dropped: Int
    var retried: Int
    var deferred: Int
    var scheduled: Int
    var resent: Int
    var dead: Int
    var possibleDuplicates: Int
    var lostClaims: Int
    /// CPU time, user and system, in microseconds.
    var cpuMicroseconds: Int
    /// Peak resident memory, in KiB.
    var peakMemoryKib: Int

    init(counters: LaneCounters) {
        claimedJobs = counters.claimedJobs
        submitted = counters.submitted
        delivered = counters[.delivered]
        invalidToken = counters[.invalidToken]
        suppressed = counters[.suppressed]
        expired = counters[.expired]
        dropped = counters[.dropped]
        retried = counters.retried
        deferred = counters.deferred
        scheduled = counters.scheduled
        resent = counters.resent
        dead = counters[.dead]
        possibleDuplicates = counters.possibleDuplicates
        lostClaims = counters.lostClaims
        var usage = rusage()
        getrusage(__rusage_who_t(RUSAGE_SELF.rawValue), &usage)
        cpuMicroseconds =
            (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1_000_000
            + Int(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec)
        peakMemoryKib = usage.ru_maxrss
    }

    func write(to path: String) throws {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .prettyPrinted]
        encoder.keyEncodingStrategy = .convertToSnakeCase
        do {
            try encoder.encode(self).write(to: URL(filePath: path))
        } catch {
            throw ValidationError("cannot write the statistics to \(path): \(error)")
        }
    }
}
