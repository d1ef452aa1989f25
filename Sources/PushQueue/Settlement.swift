import NIOCore
import PushJob
import Redis

/// A batch of settlements: what becomes of claims, to be written in one script call.
///
/// Nothing of a job is in it but what is added to the original: Redis has the bytes, and wraps or buries them itself.
public struct Settlement: Sendable {
    /// When a job is to be tried again.
    public enum Due: Sendable, Equatable {
        /// In so many milliseconds.
        case after(milliseconds: Int64)
        /// At a time in milliseconds since 1970.
        case at(milliseconds: Int64)
    }

    /// The counter of jobs whose notifications ended in more ways than one; those are counted one by one.
    package static let mixed = "mixed"

    /// The settlements of the jobs of one campaign, or of none.
    private struct Group {
        var acknowledged: [[ClaimID]] = Array(repeating: [], count: Outcome.allCases.count)
        /// The same, each with its results.
        var done: [Outcome: (count: Int, arguments: RedisArguments)] = [:]
        var arguments = RedisArguments()
    }

    /// Those of the current campaign.
    private var group = Group()
    /// The campaign of ``group``; `nil` for jobs without one.
    private var campaign: ByteBuffer?
    /// Those of the other campaigns.
    private var others: [ByteBuffer?: Group] = [:]
    private var otherClaims: [ClaimID] = []
    /// How many claims are settled.
    public private(set) var count = 0
    /// How many bytes of jobs the script copies.
    public private(set) var copiedBytes = 0
    /// Tokens that these jobs have found to be invalid. They are in the set before this is written, and no part of it; but a
    /// Redis that comes in another's place may not have them, and has to be told of them again before this.
    public var invalidTokens: [InvalidToken] = []
    /// The lane's counts since it last wrote them; most settlements carry none.
    ///
    /// It counts only if Redis finds a claim of the settlement. A settlement that is written again finds none, and counts
    /// nothing twice. One with no claims at all always counts, and must not be written again.
    package var minute: MinuteCounts?

    /// An empty batch.
    public init() {}

    /// Roughly how many bytes it takes to keep it.
    public var size: Int {
        groups.reduce(count * 32 + (minute == nil ? 0 : 1024)) { sum, group in
            group.done.values.reduce(sum + group.arguments.size) { $0 + $1.arguments.size }
        }
    }

    /// True if there is nothing to write.
    public var isEmpty: Bool { count == 0 }

    /// The claims that are settled.
    public var claims: [ClaimID] { groups.flatMap { $0.acknowledged.flatMap { $0 } } + otherClaims }

    private var groups: [Group] { [group] + others.values }

    /// Settles jobs of a campaign from now on, whose counters the settlements are added to.
    /// - Parameter campaign: its name; `nil` for jobs without one.
    public mutating func use(campaign: ByteBuffer?) {
        guard campaign != self.campaign else { return }
        others[self.campaign] = group
        group = others.removeValue(forKey: campaign) ?? Group()
        self.campaign = campaign
    }

    /// Ends a job with its only notification.
    public mutating func end(_ claim: ClaimID, _ outcome: Outcome) {
        count += 1
        group.acknowledged[outcome.index].append(claim)
    }

    /// Ends a job with its only notification.
    /// - Parameter results: the notification's result for producers; empty if it is not kept.
    public mutating func end(_ claim: ClaimID, _ outcome: Outcome, results: PackedResults) {
        guard !results.isEmpty else { return end(claim, outcome) }
        count += 1
        otherClaims.append(claim)
        group.done[outcome, default: (0, RedisArguments())].count += 1
        group.done[outcome]?.arguments.append(claim)
        group.done[outcome]?.arguments.append(results.argument)
    }

    /// Ends a job with all its notifications.
    /// - Parameter notifications: how many ended that way. Must be positive.
    public mutating func end(_ claim: ClaimID, _ outcome: Outcome, notifications: Int) {
        acknowledge(claim, as: outcome.rawValue)
        if notifications > 1 { addCount(outcome.rawValue, notifications - 1) }
    }

    /// Ends a job whose notifications ended in more ways than one. They are counted with ``addCount(_:_:)``.
    public mutating func endMixed(_ claim: ClaimID) { acknowledge(claim, as: Self.mixed) }

    /// Not among ``acknowledged``, which are written first: dead letters stand before it, which need the claim, and counts behind
    /// it, which ask whether it was found.
    private mutating func acknowledge(_ claim: ClaimID, as counter: String) {
        count += 1
        otherClaims.append(claim)
        group.arguments.append("ack")
        group.arguments.append(counter)
        group.arguments.append(1)
        group.arguments.append(claim)
    }

    /// Tells producers of notifications if the settlement before it finds its claim.
    public mutating func addResults(_ results: PackedResults) {
        guard !results.isEmpty else { return }
        group.arguments.append("result")
        group.arguments.append(results.argument)
    }

    /// Postpones a job.
    /// - Parameters:
    ///   - postponement: what to count it as.
    ///   - head: the wrapper's head (see `EnvelopeWriter`).
    ///   - reason: counted too, as `<counter>:<reason>`; `nil` without one.
    ///   - original: the range of the original's bytes in the claimed job.
    public mutating func postpone(
        _ claim: ClaimID, _ postponement: Postponement, due: Due, head: ByteBuffer, reason: String?,
        original: Range<Int>
    ) {
        group.arguments.append("retry")
        group.arguments.append(claim)
        group.arguments.append(postponement.rawValue)
        switch due {
        case .after(let milliseconds): group.arguments.append("+\(max(0, milliseconds))")
        case .at(let milliseconds): group.arguments.append("@\(milliseconds)")
        }
        group.arguments.append(head)
        group.arguments.append(original.lowerBound)
        group.arguments.append(original.count)
        copiedBytes += original.count
        if let reason { addCount("\(postponement.rawValue):\(reason)", 1) }
        otherClaims.append(claim)
        count += 1
    }

    /// The job is replaced by pieces with some of its tokens each, which are due at once.
    /// - Parameters:
    ///   - prefix: the wrapper's members that all pieces share, without `"job":` (see `EnvelopeWriter.prefix()`).
    ///   - pieces: where in the claimed job each piece's tokens stand, with the commas between them.
    ///   - cut: where in the claimed job the original's list of tokens stands, which the pieces do without.
    ///   - original: where the original's bytes stand in the claimed job.
    ///   - text: where the tokens do not stand in the claimed job as they are to be written: what `pieces` are places in.
    public mutating func split(
        _ claim: ClaimID, prefix: ByteBuffer, pieces: [Range<Int>], cut: Range<Int>, original: Range<Int>,
        text: ByteBuffer? = nil
    ) {
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
        otherClaims.append(claim)
        count += 1
    }

    /// The job becomes a dead letter.
    /// - Parameters:
    ///   - outcome: what to count it as: ``Outcome/dead`` or ``Outcome/cancelled``.
    ///   - reason: a word of letters and digits, for counters and for `requeue`.
    ///   - attempts: how many attempts were made.
    ///   - members: more JSON about it, each member with a comma before it.
    ///   - original: where the original's bytes stand in the claimed job.
    ///   - settles: `false` where other notifications of the job go on, and a settlement for those follows.
    public mutating func bury(
        _ claim: ClaimID, as outcome: Outcome = .dead, reason: String, attempts: Int, members: ByteBuffer,
        original: Range<Int>, settles: Bool = true
    ) {
        group.arguments.append(settles ? "dead" : "letter")
        group.arguments.append(claim)
        if settles { group.arguments.append(outcome.rawValue) }
        group.arguments.append(reason)
        var all = ByteBuffer()
        copiedBytes += original.count
        all.writeString(",\"attempts\":\(attempts)")
        all.writeImmutableBuffer(members)
        group.arguments.append(all)
        group.arguments.append(original.lowerBound)
        group.arguments.append(original.count)
        if settles {
            otherClaims.append(claim)
            count += 1
        }
    }

    /// Counts something if the settlement before it found its claim.
    public mutating func addCount(_ field: String, _ amount: Int) {
        group.arguments.append("count")
        group.arguments.append(field)
        group.arguments.append(amount)
    }

    /// Writes the script's arguments behind those that all batches have.
    func append(to command: inout RedisCommand) {
        append(group, of: campaign, to: &command)
        for (campaign, group) in others { append(group, of: campaign, to: &command) }
    }

    private func append(_ group: Group, of campaign: ByteBuffer?, to command: inout RedisCommand) {
        if campaign != nil || !others.isEmpty {
            command.append("campaign")
            command.append(campaign ?? ByteBuffer())
        }
        for outcome in Outcome.allCases where !group.acknowledged[outcome.index].isEmpty {
            let claims = group.acknowledged[outcome.index]
            command.append("ack")
            command.append(outcome.rawValue)
            command.append(claims.count)
            for claim in claims { command.append(claim) }
        }
        for outcome in Outcome.allCases {
            guard let done = group.done[outcome] else { continue }
            command.append("done")
            command.append(outcome.rawValue)
            command.append(done.count)
            done.arguments.append(to: &command)
        }
        group.arguments.append(to: &command)
    }

    /// Roughly how many arguments the command will have.
    var expectedArguments: Int {
        groups.reduce(minute == nil ? 16 : 96) { sum, group in
            let acknowledged = group.acknowledged.reduce(sum) { $0 + $1.count } + group.arguments.count + 2
            return group.done.values.reduce(acknowledged) { $0 + $1.arguments.count }
        }
    }
}

/// Arguments gathered before their command is.
struct RedisArguments: Sendable {
    private var bytes = ByteBuffer()
    private var lengths: [Int] = []

    var count: Int { lengths.count }

    /// Roughly how many bytes it takes to keep them.
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
