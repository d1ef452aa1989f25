import Operations
import PushQueue

/// A plan as text and as JSON.
struct PlanReport {
    private let plan: CapacityPlan
    private let constants: PlanConstants
    private let isMeasured: Bool

    init(_ plan: CapacityPlan, _ constants: PlanConstants, isMeasured: Bool) {
        self.plan = plan
        self.constants = constants
        self.isMeasured = isMeasured
    }

    // MARK: Text

    var text: String {
        let rows = [workers, connections, redis, memory]
        let table = Table(["", "needs", "used", "at most"], rows)
        let lines =
            [heading, "", table.line(["", "needs", "used", "at most"])] + rows.map { table.line($0) } + [""] + result
        return lines.map { String($0.reversed().drop { $0 == " " }.reversed()) + "\n" }.joined()
    }

    private var heading: String {
        let jobs =
            plan.work.jobSize == 1
            ? "jobs of one token"
            : "\(Words.count(plan.jobs, "job")) of \(Words.number(plan.work.jobSize)) tokens"
        return "\(Words.count(plan.work.tokens, "notification")) within "
            + "\(Words.duration(Int64(plan.work.within))): \(rate(plan.perSecond)), in \(jobs), "
            + "with answers after \(Words.duration(Int64(plan.work.latency)))"
    }

    private var workers: [String] {
        let load = plan.workerCores / Double(plan.workers * plan.lanes)
        return [
            "workers",
            "\(Words.number(plan.workers)) with \(plan.lanes) \(plan.lanes == 1 ? "lane" : "lanes"), "
                + "\(Words.bytes(plan.workerBytes)) each",
            "\(percent(load)) of a core per lane", limit(.workers),
        ]
    }

    private var connections: [String] {
        let all = plan.workers * plan.lanes * plan.connections
        return [
            "connections", "\(Words.number(all)), \(plan.connections) per lane (max_connections)",
            "\(percent(plan.inFlight / Double(all * plan.streams))) of \(Words.number(plan.streams)) streams each",
            limit(.connections),
        ]
    }

    private var redis: [String] {
        let queues =
            plan.queues == 1
            ? "1 queue (1 slot)" : "\(plan.queues) queues (\(plan.queues) slots), each on a master of its own"
        return [
            "Redis CPU", queues, "\(percent(plan.redisCores / Double(plan.queues))) of a core per queue", limit(.redis),
        ]
    }

    private var memory: [String] {
        ["Redis memory", "\(Words.bytes(plan.redisBytes)) before the first job is claimed", "", ""]
    }

    private var result: [String] {
        let time = Words.duration(Int64(plan.shortestTime))
        let reach = "\(plan.bottleneck.name) at \(rate(plan.maximumPerSecond)), so all take at least \(time)."
        return [
            (plan.fits ? "Bottleneck: " : "TOO SLOW. Bottleneck: ") + reach + " " + plan.advice,
            "Unknown: the connections and the rate that APNs accepts from you. Apple publishes no limits.",
            "Constants: \(constants.machine), \(constants.commit), \(Moment.text(constants.measuredAt))"
                + (isMeasured ? " (this machine)." : "; --measure measures this machine."),
        ]
    }

    private func limit(_ part: CapacityPlan.Bottleneck) -> String { rate(plan.limits[part] ?? 0) }
    private func rate(_ value: Double) -> String { "\(Words.rate(value)) per second" }
    private func percent(_ share: Double) -> String { "\(Words.rate(100 * share)) %" }

    // MARK: JSON

    var json: String {
        get throws {
            let limits = plan.limits.map { ($0.key.rawValue, Int(bounding: $0.value)) }
            return try JSONLine.text(
                Object(
                    tokens: plan.work.tokens, withinMs: plan.work.within, jobSize: plan.work.jobSize, jobs: plan.jobs,
                    latencyMs: plan.work.latency, perSecond: plan.perSecond, workers: plan.workers, lanes: plan.lanes,
                    connections: plan.connections, streams: plan.streams, queues: plan.queues,
                    mastersNeeded: plan.mastersNeeded, workerCores: plan.workerCores, workerBytes: plan.workerBytes,
                    inFlight: Int(bounding: plan.inFlight), redisCores: plan.redisCores, redisBytes: plan.redisBytes,
                    limits: Dictionary(uniqueKeysWithValues: limits), bottleneck: plan.bottleneck,
                    maximumPerSecond: plan.maximumPerSecond, shortestMs: plan.shortestTime, fits: plan.fits,
                    advice: plan.advice, constants: constants),
                keys: .convertToSnakeCase)
        }
    }

    private struct Object: Encodable {
        let tokens, withinMs, jobSize, jobs, latencyMs: Int
        let perSecond: Double
        let workers, lanes, connections, streams, queues, mastersNeeded: Int
        let workerCores: Double
        let workerBytes, inFlight: Int
        let redisCores: Double
        let redisBytes: Int
        let limits: [String: Int]
        let bottleneck: CapacityPlan.Bottleneck
        let maximumPerSecond: Double
        let shortestMs: Int
        let fits: Bool
        let advice: String
        let constants: PlanConstants
    }
}

extension CapacityPlan.Bottleneck {
    /// The name in a sentence.
    fileprivate var name: String {
        switch self {
        case .workers: "the workers' CPU"
        case .connections: "the connections to APNs"
        case .redis: "the CPU of Redis"
        case .jobs: "the number of jobs"
        }
    }
}
