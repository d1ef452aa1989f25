import NIOCore
import PushJob
import Redis

/// A batch of settlements that one script call writes.
///
/// It holds no jobs, only what is added to them: Redis has their bytes, and wraps or buries them itself.
public struct Settlement: Sendable {
    /// The time at which a job is due again.
    public enum Due: Sendable, Equatable {
        /// After some milliseconds.
        case after(milliseconds: Int64)
        /// At a time in milliseconds since 1970.
        case at(milliseconds: Int64)
    }

    /// The counter of jobs whose notifications had different outcomes, which are counted one by one.
    package static let mixed = "mixed"

    /// The settlements of the jobs of one campaign, or of those without a campaign.
    private struct Group {
        var acknowledged: [[ClaimID]] = Array(repeating: [], count: Outcome.allCases.count)
        /// The same with a result for each.
        var reports: [Report] = []
        var arguments = RedisArguments()
        /// The times from enqueueing to delivery, of a campaign.
        var latencies: LatencyCounts?
        /// The end of the job that was added last, which still gets counts and results.
        var open: Ending?

        /// The approximate size in memory, in bytes, without the acknowledged claims.
        var size: Int {
            reports.reduce(arguments.size + (open?.results.size ?? 0)) { $0 + $1.results.readableBytes }
        }

        /// The approximate number of arguments.
        var argumentCount: Int {
            acknowledged.reduce(arguments.count + 16) { $0 + $1.count } + reports.reduce(0) { $0 + $1.claims.count + 4 }
        }

        /// Writes the end of the job that was added last.
        mutating func close() {
            if let open, open.isComplete { open.append(to: &arguments) }
            open = nil
        }

        /// Ends a claim with the only result of its job.
        mutating func report(_ claim: ClaimID, _ result: NotificationResult) {
            for index in reports.indices.suffix(Report.compared).reversed() where reports[index].accepts(result) {
                reports[index].results.writeStaticString(",")
                return reports[index].add(claim, result)
            }
            var report = Report(result)
            report.add(claim, result)
            reports.append(report)
        }
    }

    /// Claims of jobs with one notification left that ended alike, and their results.
    private struct Report {
        /// The number of reports that are compared with a result. More only cost arguments.
        static let compared = 8
        /// The size at which a report is complete, in bytes.
        private static let maximumSize = 48 << 10

        private let first: NotificationResult
        var claims: [ClaimID] = []
        /// An array of one group, without its end.
        var results = ByteBuffer(string: "[{")

        init(_ first: NotificationResult) {
            self.first = first
            first.writeShared(to: &results, withJob: false)
            results.writeStaticString("\"notifications\":[")
        }

        func accepts(_ result: NotificationResult) -> Bool {
            results.readableBytes < Self.maximumSize && first.endedLike(result) && first.campaign == result.campaign
        }

        mutating func add(_ claim: ClaimID, _ result: NotificationResult) {
            claims.append(claim)
            result.writeOwn(to: &results, withJob: true)
        }

        func append(to command: inout RedisCommand) {
            var results = results
            results.writeStaticString("]}]")
            command.append("report")
            command.append(first.outcome.rawValue)
            command.append(results)
            command.append(claims.count)
            for claim in claims { command.append(claim) }
        }
    }

    /// The end of a claim, with what it counts and its results.
    private struct Ending {
        let claim: ClaimID
        /// True once the claim is ended or replaced; until then, only parts of its job are written.
        var isComplete = false
        /// The claim that replaces it, and its job; `nil` if the job has ended.
        var rest: (claim: ClaimID, head: ByteBuffer, original: Range<Int>)?
        var counts: [(field: String, amount: Int)] = []
        var results = PackedResults()

        func append(to arguments: inout RedisArguments) {
            arguments.append(rest == nil ? "end" : "keep")
            arguments.append(claim)
            if let rest {
                arguments.append(rest.claim)
                arguments.append(rest.head)
                arguments.append(rest.original.lowerBound)
                arguments.append(rest.original.count)
            }
            arguments.append(results.argument)
            arguments.append(results.count)
            arguments.append(counts.count)
            for (field, amount) in counts {
                arguments.append(field)
                arguments.append(amount)
            }
        }
    }

    /// The settlements of the current campaign.
    private var group = Group()
    /// The campaign of ``group``; `nil` for jobs without one.
    private var campaign: ByteBuffer?
    /// The settlements of other campaigns.
    private var others: [ByteBuffer?: Group] = [:]
    private var otherClaims: [ClaimID] = []
    /// The claims that replace others; see ``keep(_:as:head:original:)``.
    package private(set) var rests: [ClaimID] = []
    /// The number of claims.
    public private(set) var count = 0
    /// The number of bytes of jobs that the script copies.
    public private(set) var copiedBytes = 0
    /// The approximate size of the results for producers, in bytes.
    public private(set) var resultBytes = 0
    /// Tokens that these jobs have found to be invalid. They are not part of the settlement: they are added to the set
    /// before it is written. A master that takes over in a failover may lack them, so they must be added again before
    /// this is written there.
    public var invalidTokens: [InvalidToken] = []
    /// The lane's counts since it last wrote them; most settlements carry none.
    ///
    /// They count only if Redis finds a claim of the settlement. A settlement that is written again finds none, so
    /// nothing counts twice. A settlement without claims always counts, and must not be written again.
    package var minute: MinuteCounts?

    /// An empty batch.
    public init() {}

    /// The approximate size in memory, in bytes.
    public var size: Int {
        others.values.reduce(group.size + count * 32 + (minute == nil ? 0 : 1024)) { $0 + $1.size }
    }

    /// True if there is nothing to write.
    public var isEmpty: Bool { count == 0 }

    /// The claims that are settled.
    public var claims: [ClaimID] {
        others.values.reduce(into: otherClaims + group.acknowledged.joined()) { $0 += $1.acknowledged.joined() }
    }

    /// Sets the campaign of the settlements that follow, which also add to its counters.
    /// - Parameter campaign: its name; `nil` for jobs without one.
    public mutating func use(campaign: ByteBuffer?) {
        guard campaign != self.campaign else { return }
        others[self.campaign] = group
        group = others.removeValue(forKey: campaign) ?? Group()
        self.campaign = campaign
    }

    /// Adds the time from enqueueing to delivery of a notification to the counters of the current campaign, if there is
    /// one. It applies only if a claim of the campaign is found.
    package mutating func addLatency(_ milliseconds: Int) {
        guard campaign != nil else { return }
        if group.latencies == nil { group.latencies = LatencyCounts() }
        group.latencies?.record(milliseconds)
    }

    /// Adds the times of several notifications.
    package mutating func addLatencies(_ latencies: LatencyCounts) {
        guard campaign != nil else { return }
        if group.latencies == nil { group.latencies = LatencyCounts() }
        group.latencies? += latencies
    }

    /// Ends a job that had one notification left.
    public mutating func end(_ claim: ClaimID, _ outcome: Outcome) {
        // Acknowledgements are written first, so they cannot end a claim that this batch makes.
        guard rests.isEmpty || !rests.contains(claim) else { return end(claim, counting: outcome.rawValue, 1) }
        count += 1
        group.acknowledged[outcome.index].append(claim)
    }

    /// Ends a job that had one notification left. Such ends are written first, too.
    /// - Parameter results: the notification's result for producers, with the same outcome; empty if it is not kept.
    public mutating func end(_ claim: ClaimID, _ outcome: Outcome, results: PackedResults) {
        guard !results.isEmpty else { return end(claim, outcome) }
        guard let result = results.only, result.outcome == outcome else {
            end(claim, counting: outcome.rawValue, 1)
            return addResults(results)
        }
        count += 1
        otherClaims.append(claim)
        resultBytes += results.size
        group.report(claim, result)
    }

    /// Ends a job whose notifications all had the same outcome.
    /// - Parameter notifications: their number, from 1.
    public mutating func end(_ claim: ClaimID, _ outcome: Outcome, notifications: Int) {
        end(claim, counting: outcome.rawValue, notifications)
    }

    /// Ends a job whose notifications had different outcomes. Count those with ``addCount(_:_:)``.
    public mutating func endMixed(_ claim: ClaimID) { end(claim, counting: Self.mixed, 1) }

    private mutating func end(_ claim: ClaimID, counting counter: String, _ amount: Int) {
        open(claim)
        group.open?.isComplete = true
        otherClaims.append(claim)
        count += 1
        addCount(counter, amount)
    }

    /// Lets counts and results be added to the end of a claim.
    private mutating func open(_ claim: ClaimID) {
        guard group.open?.claim != claim else { return }
        group.close()
        group.open = Ending(claim: claim)
    }

    /// Adds results for producers to the job that was added last, other than with ``end(_:_:)`` and
    /// ``end(_:_:results:)``. They apply only if its claim is found.
    public mutating func addResults(_ results: PackedResults) {
        group.open?.results.append(results)
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

    /// Returns some of a job's notifications to the queue as a job of their own. A later call ends the claim, before
    /// those for other claims. Count the notifications with ``addCount(_:_:)``.
    /// - Parameters:
    ///   - head: the wrapper's head (see `EnvelopeWriter`).
    ///   - original: the range of the original's bytes in the claimed job.
    package mutating func postponePart(
        of claim: ClaimID, afterMilliseconds delay: Int64, head: ByteBuffer, original: Range<Int>
    ) {
        retry(claim, due: .after(milliseconds: delay), head: head, original: original)
    }

    private mutating func retry(_ claim: ClaimID, due: Due, head: ByteBuffer, original: Range<Int>) {
        open(claim)
        group.arguments.append("retry")
        group.arguments.append(claim)
        switch due {
        case .after(let milliseconds): group.arguments.append("+\(max(0, milliseconds))")
        case .at(let milliseconds): group.arguments.append("@\(milliseconds)")
        }
        group.arguments.append(head)
        group.arguments.append(original.lowerBound)
        group.arguments.append(original.count)
        copiedBytes += original.count
    }

    /// Replaces a claim whose job waits for some of its notifications: the others have ended.
    /// - Parameters:
    ///   - rest: the claim that replaces it.
    ///   - head: the wrapper's head, which names the tokens that are left.
    ///   - original: the range of the original's bytes in the claimed job.
    package mutating func keep(_ claim: ClaimID, as rest: ClaimID, head: ByteBuffer, original: Range<Int>) {
        open(claim)
        group.open?.rest = (rest, head, original)
        group.open?.isComplete = true
        copiedBytes += original.count
        otherClaims.append(claim)
        rests.append(rest)
        count += 1
    }

    /// Replaces a job by pieces that are due at once, each with some of its tokens.
    /// - Parameters:
    ///   - prefix: the wrapper's members that all pieces share, without `"job":` (see `EnvelopeWriter.prefix()`).
    ///   - pieces: the range of each piece's tokens in the claimed job, with the commas between them.
    ///   - cut: the range of the original's list of tokens in the claimed job. The pieces leave it out.
    ///   - original: the range of the original's bytes in the claimed job.
    ///   - text: the text that `pieces` are ranges of, if the claimed job does not have the tokens as they must be
    ///     written.
    public mutating func split(
        _ claim: ClaimID, prefix: ByteBuffer, pieces: [Range<Int>], cut: Range<Int>, original: Range<Int>,
        text: ByteBuffer? = nil
    ) {
        open(claim)
        group.arguments.append("split")
        group.arguments.append(claim)
        group.arguments.append(prefix)
        group.arguments.append(cut.lowerBound)
        group.arguments.append(cut.count)
        group.arguments.append(original.lowerBound)
        group.arguments.append(original.count)
        group.arguments.append(pieces.count)
        copiedBytes += original.count * pieces.count
        for piece in pieces {
            if let text {
                group.arguments.append("-")
                group.arguments.append(
                    text.getSlice(at: text.readerIndex + piece.lowerBound, length: piece.count) ?? .init())
            } else {
                group.arguments.append(piece.lowerBound)
                group.arguments.append(piece.count)
            }
        }
        end(claim, counting: "split", 1)
    }

    /// Makes a job a dead letter.
    /// - Parameters:
    ///   - outcome: the outcome to count: ``Outcome/dead`` or ``Outcome/cancelled``.
    ///   - reason: a code of letters and digits, for counters and for `requeue`.
    ///   - attempts: the number of attempts that were made.
    ///   - members: further JSON members about it, each with a leading comma.
    ///   - original: the range of the original's bytes in the claimed job.
    ///   - settles: `false` if other notifications of the job are not dead: a later call then ends the claim, before those
    ///     for other claims.
    public mutating func bury(
        _ claim: ClaimID, as outcome: Outcome = .dead, reason: String, attempts: Int, members: ByteBuffer,
        original: Range<Int>, settles: Bool = true
    ) {
        open(claim)
        group.arguments.append("dead")
        group.arguments.append(claim)
        group.arguments.append(reason)
        var all = ByteBuffer()
        copiedBytes += original.count
        all.writeString(",\"attempts\":\(attempts)")
        all.writeImmutableBuffer(members)
        group.arguments.append(all)
        group.arguments.append(original.lowerBound)
        group.arguments.append(original.count)
        guard settles else { return }
        end(claim, counting: outcome.rawValue, 1)
        if outcome == .dead { addCount("dead:\(reason)", 1) }
    }

    /// Adds to a counter of the job that was added last, other than with ``end(_:_:)`` and ``end(_:_:results:)``. It
    /// applies only if its claim is found.
    public mutating func addCount(_ field: String, _ amount: Int) { group.open?.counts.append((field, amount)) }

    /// Appends the script's arguments after those that all batches have.
    func append(to command: inout RedisCommand) {
        append(group, of: campaign, to: &command)
        for (campaign, group) in others { append(group, of: campaign, to: &command) }
    }

    private func append(_ group: Group, of campaign: ByteBuffer?, to command: inout RedisCommand) {
        if campaign != nil || !others.isEmpty {
            command.append("campaign")
            command.append(campaign ?? ByteBuffer())
        }
        if let latencies = group.latencies {
            let members = latencies.buckets.map { "\"\($0.bound)\":\($0.count)" }
            command.append("times")
            command.append("{\(members.joined(separator: ","))}")
        }
        for outcome in Outcome.allCases where !group.acknowledged[outcome.index].isEmpty {
            let claims = group.acknowledged[outcome.index]
            command.append("ack")
            command.append(outcome.rawValue)
            command.append(claims.count)
            for claim in claims { command.append(claim) }
        }
        for report in group.reports { report.append(to: &command) }
        group.arguments.append(to: &command)
        // Apart, because closing a copy of the group would copy all of its arguments.
        guard let open = group.open, open.isComplete else { return }
        var last = RedisArguments()
        open.append(to: &last)
        last.append(to: &command)
    }

    /// The approximate number of arguments.
    var expectedArguments: Int {
        others.values.reduce(group.argumentCount + (minute == nil ? 16 : 96)) { $0 + $1.argumentCount }
    }
}

/// Arguments that are collected before their command is made.
struct RedisArguments: Sendable {
    private var bytes = ByteBuffer()
    private var lengths: [Int] = []

    var count: Int { lengths.count }

    /// The approximate size in memory, in bytes.
    var size: Int { bytes.readableBytes + lengths.count * 8 }

    mutating func append(_ text: String) { lengths.append(bytes.writeString(text)) }
    mutating func append(_ number: Int) { lengths.append(bytes.writeString(String(number))) }
    mutating func append(_ claim: ClaimID) { lengths.append(bytes.write(claim)) }
    mutating func append(_ buffer: ByteBuffer) { lengths.append(bytes.writeImmutableBuffer(buffer)) }

    func append(to command: inout RedisCommand) {
        var offset = bytes.readerIndex
        for length in lengths {
            if let slice = bytes.getSlice(at: offset, length: length) { command.append(slice) }
            offset += length
        }
    }
}
