import NIOCore
import PushJob
import Redis

/// A batch of settlements that one script call writes.
///
/// It contains no jobs, but only the additions to them: Redis has their bytes, and wraps or buries them itself.
public struct Settlement: Sendable {
    /// The time when a job is due again.
    public enum Due: Sendable, Equatable {
        case after(milliseconds: Int64)
        /// At a time in milliseconds since 1970.
        case at(milliseconds: Int64)
    }

    /// The counter of jobs whose notifications had different outcomes. These outcomes are counted one by one.
    public static let mixed = "mixed"

    /// The settlements of the current campaign.
    private var group = SettlementGroup()
    /// The campaign of ``group``; `nil` for jobs without one.
    private var campaign: ByteBuffer?
    private var others: [ByteBuffer?: SettlementGroup] = [:]
    private var otherClaims: [ClaimID] = []
    /// The claims that replace others; see ``keep(_:as:head:original:)``.
    public private(set) var rests: [ClaimID] = []
    public private(set) var count = 0
    /// The number of bytes of jobs that the script copies.
    public private(set) var copiedBytes = 0
    /// The approximate size of the results for producers, in bytes.
    public private(set) var resultBytes = 0
    /// Invalid tokens that these jobs have found. They are not part of the settlement, but are added to the set before it is written. A
    /// master that takes over in a failover may lack them, so they must be added again before the settlement is written there.
    public var invalidTokens: [InvalidToken] = []
    /// The lane's counts since it last wrote them; most settlements carry none.
    ///
    /// They count only if Redis finds a claim of the settlement. A settlement that is written again finds none, so
    /// nothing counts twice. A settlement without claims always counts, and must not be written again.
    public var minute: MinuteCounts?

    public init() {}

    /// The approximate size in memory, in bytes.
    public var size: Int {
        others.values.reduce(group.size + count * 32 + (minute == nil ? 0 : 1024)) { $0 + $1.size }
    }

    public var isEmpty: Bool { count == 0 }

    public var claims: [ClaimID] {
        others.values.reduce(into: otherClaims + group.acknowledged.joined()) { $0 += $1.acknowledged.joined() }
    }

    /// Sets the campaign of the settlements that follow, which also add to its counters.
    /// - Parameter campaign: its name; `nil` for jobs without one.
    public mutating func use(campaign: ByteBuffer?) {
        guard campaign != self.campaign else { return }
        others[self.campaign] = group
        group = others.removeValue(forKey: campaign) ?? SettlementGroup()
        self.campaign = campaign
    }

    /// Adds the time from enqueueing to delivery of a notification to the counters of the current campaign, if there is
    /// one. It applies only if a claim of the campaign is found.
    public mutating func addLatency(_ milliseconds: Int) {
        guard campaign != nil else { return }
        if group.latencies == nil { group.latencies = LatencyCounts() }
        group.latencies?.record(milliseconds)
    }

    /// Adds the times of several notifications.
    public mutating func addLatencies(_ latencies: LatencyCounts) {
        guard campaign != nil else { return }
        if group.latencies == nil { group.latencies = LatencyCounts() }
        group.latencies? += latencies
    }

    /// Ends a job that had one notification left.
    public mutating func end(_ claim: ClaimID, _ outcome: Outcome) {
        // Acknowledgements are written first, so they cannot end a claim that this batch makes.
        guard rests.isEmpty || !rests.contains(claim) else { return end(claim, counting: outcome.rawValue, 1) }
        count += 1
        group.acknowledge(claim, outcome)
    }

    /// Ends a job that had one notification left. The script ends these jobs first.
    /// - Parameter results: the notification's result for producers, with the same outcome; empty if it is not kept.
    public mutating func end(_ claim: ClaimID, _ outcome: Outcome, results: PackedResults) {
        guard !results.isEmpty else { return end(claim, outcome) }
        guard let result = results.only, result.outcome == outcome, rests.isEmpty || !rests.contains(claim) else {
            end(claim, counting: outcome.rawValue, 1)
            return addResults(results)
        }
        count += 1
        otherClaims.append(claim)
        resultBytes += results.size
        group.report(claim, result)
    }

    /// Ends a job whose notifications all had the same outcome.
    /// - Parameter notifications: their number, at least 1.
    public mutating func end(_ claim: ClaimID, _ outcome: Outcome, notifications: Int) {
        end(claim, counting: outcome.rawValue, notifications)
    }

    /// Ends a job whose notifications had different outcomes. Count those with ``addCount(_:_:)``.
    public mutating func endMixed(_ claim: ClaimID) { end(claim, counting: Self.mixed, 1) }

    private mutating func end(_ claim: ClaimID, counting counter: String, _ amount: Int) {
        group.end(claim)
        otherClaims.append(claim)
        count += 1
        addCount(counter, amount)
    }

    /// Adds results for producers to the last added job. Jobs that end with ``end(_:_:)`` or ``end(_:_:results:)`` do not count as added.
    /// The results apply only if the job's claim is found.
    public mutating func addResults(_ results: PackedResults) {
        group.add(results)
        resultBytes += results.size
    }

    /// Postpones a job.
    /// - Parameters:
    ///   - postponement: the counter.
    ///   - head: the wrapper's head (see `EnvelopeWriter`).
    ///   - reason: counted as `<counter>:<reason>`, too; `nil` for none.
    ///   - original: the range of the original's bytes in the claimed job.
    public mutating func postpone(
        _ claim: ClaimID, _ postponement: Postponement, due: Due, head: ByteBuffer, reason: String?,
        original: Range<Int>
    ) {
        retry(claim, due: due, head: head, original: original)
        end(claim, counting: postponement.rawValue, 1)
        if let reason { addCount("\(postponement.rawValue):\(reason)", 1) }
    }

    /// Returns some of a job's notifications to the queue as a job of their own. A later call must end the claim, before any call for
    /// another claim. Count the notifications with ``addCount(_:_:)``.
    /// - Parameters:
    ///   - head: the wrapper's head (see `EnvelopeWriter`).
    ///   - original: the range of the original's bytes in the claimed job.
    public mutating func postponePart(
        of claim: ClaimID, afterMilliseconds delay: Int64, head: ByteBuffer, original: Range<Int>
    ) {
        retry(claim, due: .after(milliseconds: delay), head: head, original: original)
    }

    /// The rule that decides if a failure spends an attempt.
    public enum AttemptRule: Sendable, Equatable {
        /// It spends none. For a failure that affects many notifications, such as a lost connection.
        case never
        /// It spends one.
        case always
        /// It spends one if other notifications of its group were delivered since its last failure: then it is the notification's own
        /// fault. The script compares the group's counter in Redis with the one in the wrapper, so any lane decides alike. The first
        /// failure spends none. A group with fewer than 8 notifications is judged with its app. Without other deliveries it spends none for
        /// a day after the first failure or, if the notification `expires`, until it has expired. With none of `maximum` attempts left, the
        /// notifications become a dead letter.
        case judged(Fault, maximum: Int, expires: Bool)

        /// The part that may be at fault.
        public enum Fault: String, Sendable {
            /// The notification, its token or its job.
            case own
            /// The server, as after a server error or silence. It spends no attempt in the first hour after the first failure.
            case server
        }
    }

    /// A failure of some notifications of a job, which are tried again.
    public struct Failure: Sendable {
        public var rule: AttemptRule
        /// APNs' reason or one of the worker's own.
        public var reason: String
        public var notifications: Int
        /// The milliseconds until the next attempt.
        public var delay: Int64
        /// The wrapper's head, with the failure as its `error` and the number of the failed attempt; see `EnvelopeWriter`. The script adds
        /// the counters for judging the next failure.
        public var head: ByteBuffer
        /// The group whose deliveries judge the failure if the job has no campaign.
        public var group: DeliveryGroup
        /// If no attempt is left, the notifications become a dead letter with these JSON members, each with a leading comma.
        public var deadMembers = ByteBuffer()
        /// Results for producers if no attempt is left.
        public var results = PackedResults()
        /// The range of the original's bytes in the claimed job.
        public var original: Range<Int>

        public init(
            rule: AttemptRule, reason: String, notifications: Int = 1, delay: Int64, head: ByteBuffer,
            group: DeliveryGroup, original: Range<Int>
        ) {
            (self.rule, self.reason, self.notifications) = (rule, reason, notifications)
            (self.delay, self.head, self.group, self.original) = (delay, head, group, original)
        }
    }

    /// Postpones some notifications of a job after a failure, or makes them a dead letter if they have no attempt left. The script counts
    /// them, and decides if the failure spends an attempt.
    /// - Parameter settles: `false` if a later call ends the claim, before any call for another claim.
    public mutating func fail(_ claim: ClaimID, _ failure: Failure, settles: Bool) {
        group.write("fail", claim) { arguments in
            switch failure.rule {
            case .never: arguments.append("never 0 0")
            case .always: arguments.append("always 0 0")
            case .judged(let fault, let maximum, let expires):
                arguments.append("\(fault.rawValue) \(maximum) \(expires ? 1 : 0)")
            }
            arguments.append(failure.reason)
            arguments.append(failure.notifications)
            arguments.append(Int(max(0, failure.delay)))
            arguments.append(failure.head)
            arguments.append(failure.original)
            arguments.append(failure.group.field)
            arguments.append(failure.group.app)
            arguments.append(failure.deadMembers)
            arguments.append(failure.results.argument)
            arguments.append(failure.results.count)
        }
        copiedBytes += failure.original.count
        resultBytes += failure.results.size
        guard settles else { return }
        group.end(claim)
        otherClaims.append(claim)
        count += 1
    }

    /// Ends the reservation of a job that was not sent. A later call must end the claim, before any call for another claim. It must not be
    /// ``end(_:_:)`` or ``end(_:_:results:)``, because these are written first.
    /// - Parameter ifExhausted: true to end it only if a failure has spent the last attempt in this settlement.
    public mutating func free(_ reservation: Reservation, of claim: ClaimID, ifExhausted: Bool) {
        group.write("free", claim) { arguments in
            arguments.append(reservation.id)
            arguments.append(reservation.origin)
            arguments.append(ifExhausted ? 0 : 1)
        }
    }

    private mutating func retry(_ claim: ClaimID, due: Due, head: ByteBuffer, original: Range<Int>) {
        group.write("retry", claim) { arguments in
            switch due {
            case .after(let milliseconds): arguments.append("+\(max(0, milliseconds))")
            case .at(let milliseconds): arguments.append("@\(milliseconds)")
            }
            arguments.append(head)
            arguments.append(original)
        }
        copiedBytes += original.count
    }

    /// Replaces a claim after some notifications of its job have ended. The lane keeps the others.
    /// - Parameters:
    ///   - rest: the claim that replaces it.
    ///   - head: the wrapper's head, which names the remaining tokens.
    ///   - original: the range of the original's bytes in the claimed job.
    public mutating func keep(_ claim: ClaimID, as rest: ClaimID, head: ByteBuffer, original: Range<Int>) {
        group.end(claim, rest: (rest, head, original))
        copiedBytes += original.count
        otherClaims.append(claim)
        rests.append(rest)
        count += 1
    }

    /// The approximate maximum size of a job's pieces without their tokens, and the maximum size of the tokens of a piece, in bytes. A
    /// wrapper's head has at most 4 MiB.
    private static let (splitBytes, pieceBytes) = (1 << 20, 3 << 20)

    /// Joins pieces until one call can write them all, but keeps at least two. A claim splits a piece that is still too large again.
    private static func joined(_ pieces: [Range<Int>], copying copied: Int) -> [Range<Int>] {
        guard let first = pieces.first, let last = pieces.last else { return [] }
        let groups = max(2, splitBytes / max(1, copied), (last.upperBound - first.lowerBound) / pieceBytes + 1)
        let size = (pieces.count + groups - 1) / groups
        return stride(from: 0, to: pieces.count, by: size).map { start in
            pieces[start].lowerBound..<pieces[min(start + size, pieces.count) - 1].upperBound
        }
    }

    /// Replaces a job by pieces that are due at once, each with some of its tokens.
    /// - Parameters:
    ///   - prefix: the wrapper's members that all pieces share, without `"job":` (see `EnvelopeWriter.prefix()`).
    ///   - pieces: the range of each piece's tokens in the claimed job, with the commas between them. If the rest of the job is
    ///     so large that all pieces would be too much for a call, several become one.
    ///   - fair: the value of `fair` if the job has waited for the share of its key, empty for a job without `fair`; `nil` if it has not
    ///     waited for a share.
    ///   - cut: the range of the original's list of tokens in the claimed job. The pieces leave it out.
    ///   - original: the range of the original's bytes in the claimed job.
    ///   - text: the text that `pieces` are ranges of, if the claimed job does not have the tokens as they must be written.
    public mutating func split(
        _ claim: ClaimID, prefix: ByteBuffer, fair: ByteBuffer? = nil, pieces: [Range<Int>], cut: Range<Int>,
        original: Range<Int>, text: ByteBuffer? = nil
    ) {
        let pieces = Self.joined(pieces, copying: original.count - cut.count + prefix.readableBytes)
        group.write("split", claim) { arguments in
            arguments.append(prefix)
            var share = ByteBuffer(string: fair == nil ? "" : "by:")
            if let fair { share.writeImmutableBuffer(fair) }
            arguments.append(share)
            arguments.append(cut)
            arguments.append(original)
            arguments.append(pieces.count)
            for piece in pieces {
                if let text {
                    arguments.append("-")
                    arguments.append(
                        text.getSlice(at: text.readerIndex + piece.lowerBound, length: piece.count) ?? .init())
                } else {
                    arguments.append(piece)
                }
            }
        }
        copiedBytes += (original.count - cut.count) * pieces.count + cut.count
        end(claim, counting: "split", 1)
    }

    /// Makes a job a dead letter.
    /// - Parameters:
    ///   - outcome: the outcome to count: ``Outcome/dead`` or ``Outcome/cancelled``.
    ///   - reason: a code of letters and digits, for counters and for `requeue`.
    ///   - attempts: the number of attempts that were made.
    ///   - members: further JSON members about it, each with a leading comma.
    ///   - original: the range of the original's bytes in the claimed job.
    ///   - settles: `false` if other notifications of the job are not dead. A later call must then end the claim, before any call for
    ///     another claim.
    public mutating func bury(
        _ claim: ClaimID, as outcome: Outcome = .dead, reason: String, attempts: Int, members: ByteBuffer,
        original: Range<Int>, settles: Bool = true
    ) {
        var all = ByteBuffer()
        all.writeString(",\"attempts\":\(attempts)")
        all.writeImmutableBuffer(members)
        group.write("dead", claim) { arguments in
            arguments.append(reason)
            arguments.append(all)
            arguments.append(original)
        }
        copiedBytes += original.count
        guard settles else { return }
        end(claim, counting: outcome.rawValue, 1)
        if outcome == .dead { addCount("dead:\(reason)", 1) }
    }

    /// Adds to a counter of the last added job, like ``addResults(_:)``.
    public mutating func addCount(_ field: String, _ amount: Int) { group.addCount(field, amount) }

    /// Appends the script's arguments after those that all batches have.
    func append(to command: inout RedisCommand) {
        if campaign != nil || !others.isEmpty { Self.append(campaign, to: &command) }
        group.append(to: &command)
        for (campaign, group) in others {
            Self.append(campaign, to: &command)
            group.append(to: &command)
        }
    }

    private static func append(_ campaign: ByteBuffer?, to command: inout RedisCommand) {
        command.append("campaign")
        command.append(campaign ?? ByteBuffer())
    }

    var expectedArguments: Int {
        others.values.reduce(group.argumentCount + (minute == nil ? 16 : 96)) { $0 + $1.argumentCount }
    }
}
