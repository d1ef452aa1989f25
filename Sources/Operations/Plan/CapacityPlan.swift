/// The workers, connections and Redis that a number of notifications within a time needs. A calculation, with no I/O.
///
/// Costs are linear in 1 / job size between the measured sizes: a part for each job and a part for each token. A
/// notification costs less at a higher rate, because a busy program does more each time it wakes up.
package struct CapacityPlan: Sendable, Equatable {
    /// The notifications that must be sent.
    package struct Work: Sendable, Equatable {
        /// The number of notifications.
        package var tokens: Int
        /// The time for all notifications, in milliseconds.
        package var within: Int
        /// Tokens per job.
        package var jobSize: Int
        /// The time after which APNs answers a request, in milliseconds.
        package var latency: Int
        /// The number of masters of a Cluster; `nil` for a single server, with or without Sentinel.
        package var clusterMasters: Int?

        package init(tokens: Int, within: Int, jobSize: Int, latency: Int, clusterMasters: Int? = nil) {
            self.tokens = tokens
            self.within = within
            self.jobSize = jobSize
            self.latency = latency
            self.clusterMasters = clusterMasters
        }
    }

    /// The parts of the fleet that are given, and not calculated.
    package struct Given: Sendable, Equatable {
        package var workers: Int?
        /// Lanes per worker.
        package var lanes: Int?
        /// Connections per lane.
        package var connections: Int?
        /// Concurrent requests per connection. APNs usually allows 1,000.
        package var streams = 1000

        package init(workers: Int? = nil, lanes: Int? = nil, connections: Int? = nil, streams: Int = 1000) {
            self.workers = workers
            self.lanes = lanes
            self.connections = connections
            self.streams = streams
        }
    }

    /// The error for work or parts that are not valid.
    package struct Invalid: Error, Equatable, CustomStringConvertible {
        /// The name of the value: `tokens`, `within`, `job size`, `latency`, `masters`, `workers`, `lanes`,
        /// `connections` or `streams`.
        package let name: String
        package let range: ClosedRange<Int>
        package var description: String { "\(name) must be from \(range.lowerBound) to \(range.upperBound)" }
    }

    /// The part of the fleet that limits the rate.
    package enum Bottleneck: String, Sendable, Encodable, CaseIterable {
        /// The CPU of the lanes.
        case workers
        /// The streams of the connections to APNs.
        case connections
        /// The CPU of Redis.
        case redis
        /// The number of jobs: a lane sends a job, so that lanes without one have no work.
        case jobs
    }

    /// The share of a core, or of a connection's streams, that a plan uses: the rest is for unevenness and for retries.
    package static let share = 0.7
    /// The workers of a plan, so that one can fail.
    package static let leastWorkers = 2
    /// The lanes of a worker, unless they are given.
    package static let defaultLanes = 2
    /// The highest values of the settings `lanes` and `max_connections`.
    private static let maximumLanes = 256
    private static let maximumConnections = 100
    /// A worker divides a larger job into parts of this size.
    private static let largestPart = 1000

    package let work: Work
    /// Notifications per second that the time requires.
    package let perSecond: Double
    package let jobs: Int

    package let workers: Int
    /// Lanes per worker.
    package let lanes: Int
    /// Connections per lane.
    package let connections: Int
    /// Concurrent requests per connection.
    package let streams: Int
    /// The memory of one worker, in bytes.
    package let workerBytes: Int
    /// The number of queues into which the work is divided. In a Cluster each is a slot, on a master of its own.
    package let queues: Int
    /// The memory of all jobs in Redis before the first is claimed, in bytes.
    package let redisBytes: Int

    /// The CPU load of all lanes at the required rate, in cores.
    package let workerCores: Double
    /// The CPU load of all masters at the required rate, in cores.
    package let redisCores: Double
    /// The number of concurrent requests at the required rate.
    package let inFlight: Double

    /// The maximum rate of each part, in notifications per second.
    package let limits: [Bottleneck: Double]
    package let bottleneck: Bottleneck
    /// The maximum rate of the fleet, in notifications per second.
    package var maximumPerSecond: Double { limits[bottleneck] ?? 0 }
    /// True if the fleet reaches the required rate.
    package var fits: Bool { maximumPerSecond >= perSecond }
    /// The time that all notifications need at the maximum rate, in milliseconds.
    package var shortestTime: Int { Int(bounding: (1000 * Double(work.tokens) / maximumPerSecond).rounded(.up)) }
    /// The number of masters that the work needs.
    package let mastersNeeded: Int

    /// - Throws: ``Invalid`` for values out of range.
    package init(_ work: Work, given: Given = Given(), _ constants: PlanConstants) throws(Invalid) {
        try Self.check(work, given)
        self.work = work
        let tokens = Double(work.tokens)
        let rate = 1000 * tokens / Double(work.within)
        perSecond = rate
        let jobs = (work.tokens - 1) / work.jobSize + 1
        self.jobs = jobs
        let jobSize = min(work.jobSize, work.tokens)
        let costs = Costs(constants, jobSize: jobSize, part: min(jobSize, Self.largestPart))

        // A request occupies its stream for longer than APNs needs for the answer.
        let streamSeconds = Double(work.latency) / 1000 + costs.streamOverhead
        inFlight = rate * streamSeconds
        streams = given.streams
        let usableStreams = Double(given.streams) * Self.share
        let wanted = max(
            rate / costs.worker.rate(at: Self.share),
            inFlight / (usableStreams * Double(given.connections ?? Self.maximumConnections)))
        let split = Self.split(lanes: Int(wanted.rounded(.up)), given)
        workers = split.workers
        lanes = split.lanes
        let allLanes = Double(split.workers * split.lanes)
        connections =
            given.connections
            ?? min(Self.maximumConnections, max(1, Int((inFlight / (allLanes * usableStreams)).rounded(.up))))
        workerBytes = constants.workerBytes
        workerCores = allLanes * costs.worker.cores(at: rate / allLanes)

        let masters = work.clusterMasters ?? 1
        mastersNeeded = max(1, Int((rate / costs.redis.rate(at: Self.share)).rounded(.up)))
        queues = min(masters, mastersNeeded)
        redisCores = Double(queues) * costs.redis.cores(at: rate / Double(queues))
        redisBytes = Int(bounding: (tokens / Double(jobSize) * costs.jobBytes).rounded(.up))

        let ofLanes = costs.worker.rate(at: 1)
        var limits: [Bottleneck: Double] = [
            .workers: allLanes * ofLanes,
            .connections: allLanes * Double(connections * given.streams) / streamSeconds,
            .redis: Double(queues) * costs.redis.rate(at: 1),
        ]
        if work.jobSize > 1, Double(jobs) < allLanes {
            let ofConnections = Double(connections * given.streams) / streamSeconds
            limits[.jobs] = Double(jobs) * min(ofLanes, ofConnections)
        }
        self.limits = limits
        let order = Bottleneck.allCases.filter { limits[$0] != nil }
        bottleneck = order.min { limits[$0] ?? 0 < limits[$1] ?? 0 } ?? .workers
    }

    private static func check(_ work: Work, _ given: Given) throws(Invalid) {
        let values: [(String, Int?, ClosedRange<Int>)] = [
            ("tokens", work.tokens, 1...1_000_000_000_000), ("within", work.within, 1000...31_536_000_000),
            ("job size", work.jobSize, 1...1_000_000), ("latency", work.latency, 0...600_000),
            ("masters", work.clusterMasters, 1...1000), ("workers", given.workers, 1...100_000),
            ("lanes", given.lanes, 1...maximumLanes), ("connections", given.connections, 1...maximumConnections),
            ("streams", given.streams, 1...10_000),
        ]
        for (name, value, range) in values where value.map({ !range.contains($0) }) ?? false {
            throw Invalid(name: name, range: range)
        }
    }

    /// Divides lanes evenly among workers.
    private static func split(lanes: Int, _ given: Given) -> (workers: Int, lanes: Int) {
        let most = given.lanes ?? defaultLanes
        let workers = given.workers ?? max(leastWorkers, (lanes - 1) / most + 1)
        return (workers, given.lanes ?? min(given.workers == nil ? most : maximumLanes, (lanes - 1) / workers + 1))
    }
}

extension CapacityPlan {
    /// The change that raises the maximum rate, as a sentence.
    package var advice: String {
        switch bottleneck {
        case .workers: "Add lanes or workers: lanes share nothing."
        case .connections:
            connections < Self.maximumConnections
                ? "Raise max_connections above \(connections), or add lanes."
                : "Add lanes: each has its own connections."
        case .redis where work.jobSize > Self.largestPart:
            "Use jobs of \(Words.number(Self.largestPart)) tokens: workers divide larger ones, which costs Redis more\(divide)."
        case .redis where work.jobSize < Self.largestPart:
            "Use larger jobs, up to \(Words.number(Self.largestPart)) tokens, where many devices get the same payload"
                + "\(divide)."
        case .redis: "Divide the queue\(divide)."
        case .jobs: "Use smaller jobs: only one lane sends a job, and there are fewer jobs than lanes."
        }
    }

    /// The end of the advice to divide the queue.
    private var divide: String {
        let queues = max(2, max(queues + 1, mastersNeeded))
        let end = "\(Words.number(queues)) queues, each on a master of its own in a Cluster"
        return work.jobSize == Self.largestPart ? " into \(end)" : ", or divide the queue into \(end)"
    }
}

// MARK: - Costs

/// A CPU load as a function of the rate: linear between the two measured rates, and proportional to the rate outside.
private struct Load {
    /// The load without notifications that follows from the two samples, in cores.
    var awake: Double
    /// CPU time for each further notification between the measured rates, in seconds.
    var further: Double
    /// CPU time for a notification at a low rate, and at a high one, in seconds.
    var idle: Double
    var busy: Double

    init(awake: Double, further: Double, idle: Double, busy: Double) {
        (self.awake, self.further, self.idle, self.busy) = (awake, further, idle, busy)
    }

    /// - Parameter cost: a sample's CPU time in microseconds.
    init(_ size: PlanConstants.JobSize, _ cost: KeyPath<PlanConstants.Sample, Double>) {
        let rates = (fast: size.atOnce.perSecond, slow: size.delayed.perSecond)
        (idle, busy) = (size.delayed[keyPath: cost] / 1e6, size.atOnce[keyPath: cost] / 1e6)
        further = (rates.fast * busy - rates.slow * idle) / (rates.fast - rates.slow)
        awake = rates.slow * (idle - further)
        // Samples of one rate, or with more noise than difference, show only one cost.
        guard rates.fast >= 1.5 * rates.slow, idle > busy, further > 0 else {
            let most = max(idle, busy)
            (awake, further, idle, busy) = (0, most, most, most)
            return
        }
    }

    func cores(at rate: Double) -> Double { max(busy * rate, min(idle * rate, awake + further * rate)) }

    /// Returns the highest rate with at most a load, in notifications per second.
    func rate(at load: Double) -> Double { min(load / busy, max(load / idle, (load - awake) / further)) }

    func mixed(with other: Load, _ share: Double) -> Load {
        func mix(_ part: KeyPath<Load, Double>) -> Double {
            self[keyPath: part] + share * (other[keyPath: part] - self[keyPath: part])
        }
        return Load(awake: mix(\.awake), further: mix(\.further), idle: mix(\.idle), busy: mix(\.busy))
    }
}

/// The CPU load of Redis as a function of the rate of jobs of one size.
///
/// Redis runs a script for all jobs that wait when a worker asks. With more jobs per second a worker asks more often, but
/// not as often: each script finds more jobs. So the load has a part that grows with the square root of the jobs per
/// second, a part for each job and a part for each token. This also holds between the sizes of jobs and rates that were
/// measured, and below them.
private struct RedisLoad {
    /// Moving a part of a divided job costs this much more than claiming as many bytes. Measured with 5,000 tokens.
    private static let dividing = 1.2

    /// The factor of the part that grows with the root. Other fleets than the one that was measured have more connections
    /// or fewer streams, and so fewer jobs per script.
    private static let reserve = 1.2

    /// In cores: for the root of the jobs per second, and for each job and notification per second.
    private var (root, job, token) = (0.0, 0.0, 0.0)
    private let jobSize: Double
    /// The factor of the cost of tokens: each part of a divided job has the producer's bytes, with all tokens.
    private let factor: Double

    /// - Parameter part: the tokens of a job that a worker handles at once.
    init(_ constants: PlanConstants, jobSize: Int, part: Int) {
        self.jobSize = Double(part)
        let parts = (Double(jobSize) / Double(part)).rounded(.up)
        factor = parts > 1 ? 1 + Self.dividing * (parts + 1) : 1
        // Each sample is divided by its load, so that all count alike.
        let samples = constants.jobSizes.flatMap { size in
            [size.atOnce, size.delayed].map { sample in
                let jobs = sample.perSecond / Double(size.tokens)
                let load = sample.perSecond * sample.redisMicroseconds / 1e6
                return [jobs.squareRoot(), jobs, sample.perSecond].map { $0 / load }
            }
        }
        // A load is no less with more jobs or tokens, whatever a noisy machine has measured.
        var least = Double.infinity
        for parts in [[0, 1, 2], [0, 2], [0, 1], [1, 2], [2]] {
            guard let found = Self.fit(samples, parts), found.error < least else { continue }
            least = found.error
            (root, job, token) = (Self.reserve * found.factors[0], found.factors[1], found.factors[2])
        }
    }

    func cores(at rate: Double) -> Double {
        root * (rate / jobSize).squareRoot() + (job / jobSize + factor * token) * rate
    }

    /// Returns the highest rate with at most a load, in notifications per second.
    func rate(at load: Double) -> Double {
        let (linear, half) = (job / jobSize + factor * token, root / jobSize.squareRoot() / 2)
        let top = load / (half + (half * half + linear * load).squareRoot())
        return top * top
    }

    /// Fits the factors of some parts, by least squares, so that each sample's sum is 1.
    /// - Returns: `nil` if a factor would be negative, or is not determined by the samples.
    private static func fit(_ samples: [[Double]], _ parts: [Int]) -> (factors: [Double], error: Double)? {
        var rows = parts.map { row in
            parts.map { column in samples.reduce(0) { $0 + $1[row] * $1[column] } } + [
                samples.reduce(0) { $0 + $1[row] }
            ]
        }
        for pivot in rows.indices {
            let scale = parts.indices.map { abs(rows[$0][pivot]) }.max() ?? 0
            guard abs(rows[pivot][pivot]) > 1e-9 * scale, scale > 0 else { return nil }
            for row in rows.indices where row != pivot {
                let factor = rows[row][pivot] / rows[pivot][pivot]
                rows[row] = zip(rows[row], rows[pivot]).map { $0 - factor * $1 }
            }
        }
        var factors = [0.0, 0.0, 0.0]
        for (index, part) in parts.enumerated() { factors[part] = rows[index][parts.count] / rows[index][index] }
        guard factors.allSatisfy({ $0 >= 0 && $0.isFinite }), factors.contains(where: { $0 > 0 }) else { return nil }
        let error = samples.reduce(0) { sum, sample in
            let difference = zip(factors, sample).reduce(-1) { $0 + $1.0 * $1.1 }
            return sum + difference * difference
        }
        return (factors, error)
    }
}

/// The costs of a notification in a job of one size.
private struct Costs {
    let worker: Load
    let redis: RedisLoad
    /// The time for which a request occupies its stream beyond the answer time, in seconds.
    let streamOverhead: Double
    /// The memory of a job in Redis, in bytes.
    let jobBytes: Double

    /// - Parameter part: the tokens of a job that a worker handles at once.
    init(_ constants: PlanConstants, jobSize: Int, part: Int) {
        let sizes = constants.jobSizes
        let (small, large) = Self.neighbours(of: part, in: sizes)
        let (few, many) = (1 / Double(small.tokens), 1 / Double(large.tokens))
        let share = few > many ? (few - 1 / Double(part)) / (few - many) : 0
        worker = Load(small, \.workerMicroseconds).mixed(with: Load(large, \.workerMicroseconds), share)
        redis = RedisLoad(constants, jobSize: jobSize, part: part)
        let overheads = [small, large].map { size in
            max(0, Double(constants.streams) / size.delayed.perSecond - constants.answerMilliseconds / 1000)
        }
        streamOverhead = max(overheads[0] + share * (overheads[1] - overheads[0]), 1e-6)
        jobBytes = Self.bytes(of: jobSize, sizes)
    }

    /// Returns the measured sizes between which a size is; the same twice for one that was measured, or is beyond them.
    private static func neighbours(
        of jobSize: Int, in sizes: [PlanConstants.JobSize]
    ) -> (PlanConstants.JobSize, PlanConstants.JobSize) {
        // Valid constants have at least one size.
        let upper = sizes.firstIndex { $0.tokens >= jobSize } ?? sizes.count - 1
        let lower = sizes[upper].tokens > jobSize ? max(0, upper - 1) : upper
        return (sizes[lower], sizes[upper])
    }

    private static func bytes(of jobSize: Int, _ sizes: [PlanConstants.JobSize]) -> Double {
        let (small, large) = neighbours(of: jobSize, in: sizes)
        guard large.tokens > small.tokens else {
            // Larger than all that were measured: most of it are tokens.
            return large.jobBytes * Double(max(1, jobSize)) / Double(large.tokens)
        }
        let share = Double(jobSize - small.tokens) / Double(large.tokens - small.tokens)
        return small.jobBytes + share * (large.jobBytes - small.jobBytes)
    }
}
