/// Measures if one scope is slow, and how fast it may be probed. Fresh notifications and retries have one measure each. No I/O.
///
/// A scope becomes slow only if fewer than one in ``Rules/share`` of its last answers prove it good. So a scope that accepts one push of
/// twenty is not slowed, nor is one with little traffic. A congestion window that is halved by each failure would stop both, because its
/// throughput falls with the square root of the share of failures.
///
/// All times are in milliseconds of the lane's clock. Almost every answer is a proof, so a proof costs only a few instructions: it is
/// counted, and the next failure writes the run of proofs down.
struct Measure {
    /// The number of last answers that are considered.
    static let most = 200
    /// The maximum age of an answer that is considered.
    static let life: Int64 = 30_000
    /// The number of last answers of a slow scope that count. The scope is good again if half of them are proofs.
    static let last = 20
    /// A slow scope with this many last answers is good again if ``fewestProofs`` of them are proofs. In an outage about one answer in a
    /// hundred is good, so three good answers by chance are rare.
    static let longLast = 30
    static let fewestProofs = 3
    /// Another probe may be sent after this time, even if the last probe is not answered.
    static let patience: Int64 = 5000

    /// The condition of a slow scope, and the pauses between failed probes.
    struct Rules: Sendable {
        /// A scope becomes slow if fewer than one in this number of answers are proofs.
        var share = 50
        /// A scope with fewer failures does not become slow. Failures are counted instead of answers, because a wide scope gets more
        /// answers than a narrow one, and would be slowed before it.
        var fewest = 60
        var first: Int64 = 100
        var longest: Int64 = 1000
        /// The longest pause once the scope has been slow for ``lasting``.
        var longestOfLasting: Int64 = 5000

        static let lasting: Int64 = 300_000
        static let usual = Rules()
        /// The pauses are long, because each probe of a credential costs a connection.
        static let ofCredential = Rules(first: 5000, longest: 60_000, longestOfLasting: 60_000)
    }

    /// Failures, and runs of proofs between them.
    private struct Entry {
        /// The time of the failure, or of the last proof of the run.
        var at: Int64
        /// The number of proofs; 0 for a failure.
        var proofs: Int
    }

    private(set) var proofs: UInt32 = 0
    /// The time of the last proof.
    var provedAt: Int64 { max(provedByFreshAt, provedByRetryAt) }
    private(set) var provedByFreshAt = Int64.min / 2
    private var provedByRetryAt = Int64.min / 2
    private(set) var isSlow = false
    /// The time when the scope became slow.
    private(set) var slowSince: Int64 = 0
    /// The number of consecutive failures, valid while `noted` equals `proofs`.
    private var failuresInRow = 0
    var failuresSinceProof: Int { proofs == noted ? failuresInRow : 0 }

    private var entries: [Entry] = []
    /// The number of proofs that have been written to the entries.
    private var noted: UInt32 = 0
    private var answers = 0
    private var good = 0

    /// The last answers of a slow scope, the newest in the lowest bit; 1 is a proof.
    private var recent: UInt32 = 0
    private var recentCount = 0
    private var window = 1
    private var inFlight = 0
    private var until: Int64 = 0
    private var sentAt: Int64 = 0
    private var pause: Int64 = 0

    // MARK: Answers

    /// Records a proof that the scope is good.
    /// - Returns: true if this made a slow scope good.
    @inline(__always)
    mutating func recordProof(now: Int64) -> Bool {
        proofs &+= 1
        provedByFreshAt = now
        return isSlow ? recordProofWhileSlow(now: now) : false
    }

    /// Records that a retry proves the scope good. The proof counts among the answers only while the scope is slow, because failures of
    /// retries do not count either.
    /// - Returns: true if this made a slow scope good.
    mutating func recordProofByRetry(now: Int64) -> Bool {
        proofs &+= 1
        provedByRetryAt = now
        guard !isSlow else { return recordProofWhileSlow(now: now) }
        noted &+= 1
        failuresInRow = 0
        return false
    }

    private mutating func recordProofWhileSlow(now: Int64) -> Bool {
        window = min(window + 1, 1 << 16)
        until = now
        pause = 0
        note(true)
        let good = (recent & (1 << UInt32(Self.last) - 1)).nonzeroBitCount
        guard
            good >= Self.last / 2
                || recentCount == Self.longLast && recent.nonzeroBitCount >= Self.fewestProofs
        else { return false }
        self = ended()
        return true
    }

    /// Records a failure that the scope may be at fault for.
    /// - Returns: true if this made the scope slow.
    mutating func recordFailure(now: Int64, _ rules: Rules) -> Bool {
        failuresInRow = failuresSinceProof + 1
        guard !isSlow else {
            noted = proofs
            window = 1
            note(false)
            return false
        }
        let run = Int(proofs &- noted)
        if run > 0 { append(Entry(at: provedByFreshAt, proofs: min(run, Self.most))) }
        noted = proofs
        append(Entry(at: now, proofs: 0))
        trim(now: now)
        guard answers - good >= rules.fewest, good * rules.share < answers else { return false }
        slowDown(now: now, rules)
        return true
    }

    private mutating func note(_ isGood: Bool) {
        recent = (recent << 1 | (isGood ? 1 : 0)) & (1 << UInt32(Self.longLast) - 1)
        recentCount = min(recentCount + 1, Self.longLast)
    }

    private mutating func append(_ entry: Entry) {
        entries.append(entry)
        good += entry.proofs
        answers += max(1, entry.proofs)
    }

    private mutating func trim(now: Int64) {
        var old = 0
        while old < entries.count {
            let first = entries[old]
            let excess = answers - Self.most
            guard first.at < now - Self.life || excess > 0 else { break }
            if first.at >= now - Self.life, first.proofs > excess {
                entries[old].proofs -= excess
                good -= excess
                answers -= excess
                break
            }
            good -= first.proofs
            answers -= max(1, first.proofs)
            old += 1
        }
        if old > 0 { entries.removeFirst(old) }
    }

    // MARK: Being slow

    mutating func slowDown(now: Int64, _ rules: Rules) {
        (isSlow, slowSince) = (true, now)
        (recent, recentCount, window, inFlight) = (0, 0, 1, 0)
        (pause, until, sentAt) = (0, now + rules.first, now)
        forget()
    }

    /// Forgets the answers, but keeps the number of proofs and whether the scope is slow.
    mutating func forget() {
        entries = []
        (answers, good, noted) = (0, 0, proofs)
        failuresInRow = 0
    }

    /// Returns the measure of a scope that is good again.
    private func ended() -> Measure {
        var other = Measure()
        (other.proofs, other.noted) = (proofs, proofs)
        (other.provedByFreshAt, other.provedByRetryAt) = (provedByFreshAt, provedByRetryAt)
        return other
    }

    mutating func end() { self = ended() }

    /// Forgets everything except whether the scope is slow.
    mutating func reset() {
        let wasSlow = isSlow
        self = Measure()
        isSlow = wasSlow
    }

    /// Allows a probe at once.
    mutating func probeNow(now: Int64) { (until, sentAt) = (min(until, now), now - Self.patience) }

    // MARK: Sending

    /// True if a notification may be sent now. While the scope is slow, it is a probe.
    func may(now: Int64) -> Bool {
        !isSlow || now >= until && (inFlight < window || now - sentAt >= Self.patience)
    }

    /// The time of the next possible probe; `nil` if the scope is not slow.
    var nextProbe: Int64? { isSlow ? max(until, inFlight < window ? until : sentAt + Self.patience) : nil }

    mutating func recordSent(now: Int64, _ rules: Rules) {
        inFlight += 1
        sentAt = now
        guard window == 1 else { return }
        let longest = now - slowSince >= Rules.lasting ? rules.longestOfLasting : rules.longest
        pause = pause == 0 ? rules.first : min(longest, pause + pause / 2)
        until = now + pause
    }

    /// Records the end of a probe, whatever the answer was.
    mutating func recordEnd() { inFlight = max(0, inFlight - 1) }
}
