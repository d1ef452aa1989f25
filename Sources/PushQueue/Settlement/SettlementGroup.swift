import NIOCore
import PushJob
import Redis

/// The settlements of the jobs of one campaign, or of those without a campaign.
struct SettlementGroup {
    /// Results of jobs with one notification left that ended alike, and the claims of these jobs.
    private struct Report {
        /// A result is compared with this number of reports. If its report is not found, it gets a new one, which only costs arguments.
        static let compared = 8
        /// A report that has this many bytes is complete.
        static let maximumSize = 48 << 10

        var results: PackedGroup
        var claims: [ClaimID]

        func append(to command: inout RedisCommand) {
            var array = ByteBuffer(string: "[")
            results.write(to: &array)
            array.writeStaticString("]")
            command.append("report")
            command.append(results.outcome.rawValue)
            command.append(array)
            command.append(claims.count)
            for claim in claims { command.append(claim) }
        }
    }

    /// The end of a claim, with its counts and results.
    private struct Ending {
        let claim: ClaimID
        /// True once the claim is ended or replaced; until then, only parts of its job are written.
        var isComplete = false
        var rest: Rest?
        var counts: [(field: String, amount: Int)] = []
        var results = PackedResults()

        func append(to arguments: inout RedisCommand) {
            arguments.append(rest == nil ? "end" : "keep")
            arguments.append(claim)
            if let rest {
                arguments.append(rest.claim)
                arguments.append(rest.head)
                arguments.append(rest.original)
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

    /// The claim that replaces another, and its job: the wrapper's head, and the range of the original's bytes in the claimed job.
    typealias Rest = (claim: ClaimID, head: ByteBuffer, original: Range<Int>)

    /// The claims of jobs with one notification left, without a result, by the index of their outcomes.
    private(set) var acknowledged: [[ClaimID]] = Array(repeating: [], count: Outcome.allCases.count)
    /// The ends of jobs with one notification left and a result.
    private var reports: [Report] = []
    /// The ends of all other jobs, as arguments of the script.
    private var arguments = RedisCommand()
    /// The times from enqueueing to delivery, of a campaign.
    var latencies: LatencyCounts?
    /// The end of the job that was added last, which still gets counts and results.
    private var ending: Ending?

    /// The approximate size in memory, in bytes, without the acknowledged claims.
    var size: Int {
        let collected = arguments.byteCount + arguments.count * 8
        return reports.reduce(collected + (ending?.results.size ?? 0)) { $0 + $1.results.size }
    }

    /// The approximate number of arguments.
    var argumentCount: Int {
        acknowledged.reduce(arguments.count + 16) { $0 + $1.count } + reports.reduce(0) { $0 + $1.claims.count + 4 }
    }

    /// Ends a claim of a job with one notification left.
    mutating func acknowledge(_ claim: ClaimID, _ outcome: Outcome) { acknowledged[outcome.index].append(claim) }

    /// Ends a claim with the only result of its job.
    mutating func report(_ claim: ClaimID, _ result: NotificationResult) {
        for index in reports.indices.suffix(Report.compared).reversed()
        where reports[index].results.size < Report.maximumSize && reports[index].results.accepts(result) {
            reports[index].results.add(result)
            return reports[index].claims.append(claim)
        }
        reports.append(Report(results: PackedGroup(result, ofJob: false), claims: [claim]))
    }

    /// Writes an action about the job of a claim. The claim must be ended before the next call for another claim.
    /// - Parameter append: appends the action's other arguments.
    mutating func write(_ action: String, _ claim: ClaimID, _ append: (inout RedisCommand) -> Void) {
        open(claim)
        arguments.append(action)
        arguments.append(claim)
        append(&arguments)
    }

    /// Ends a claim.
    /// - Parameter rest: the claim that replaces it, and its job; `nil` if the job has ended.
    mutating func end(_ claim: ClaimID, rest: Rest? = nil) {
        open(claim)
        if let rest { ending?.rest = rest }
        ending?.isComplete = true
    }

    private mutating func open(_ claim: ClaimID) {
        guard ending?.claim != claim else { return }
        if let ending, ending.isComplete { ending.append(to: &arguments) }
        ending = Ending(claim: claim)
    }

    /// Adds results for producers to the last claim of ``write(_:_:_:)`` or ``end(_:rest:)``.
    mutating func add(_ results: PackedResults) { ending?.results.append(results) }

    /// Adds to a counter with the last claim of ``write(_:_:_:)`` or ``end(_:rest:)``.
    mutating func addCount(_ field: String, _ amount: Int) { ending?.counts.append((field, amount)) }

    func append(to command: inout RedisCommand) {
        if let latencies {
            let members = latencies.buckets.map { "\"\($0.bound)\":\($0.count)" }
            command.append("times")
            command.append("{\(members.joined(separator: ","))}")
        }
        for outcome in Outcome.allCases where !acknowledged[outcome.index].isEmpty {
            let claims = acknowledged[outcome.index]
            command.append("ack")
            command.append(outcome.rawValue)
            command.append(claims.count)
            for claim in claims { command.append(claim) }
        }
        for report in reports { report.append(to: &command) }
        command.append(contentsOf: arguments)
        if let ending, ending.isComplete { ending.append(to: &command) }
    }
}

extension RedisCommand {
    /// Appends the beginning and the length.
    mutating func append(_ range: Range<Int>) {
        append(range.lowerBound)
        append(range.count)
    }
}
