import Foundation
import TestSupport
import Testing

@testable import Operations

@Suite("A capacity plan")
struct CapacityPlanTests {
    typealias Work = CapacityPlan.Work
    typealias Given = CapacityPlan.Given

    /// Constants with which a plan can be calculated by hand.
    ///
    /// A request occupies its stream for 5 ms longer than the answer takes. With one token per job, a lane at 70 % load
    /// sends 175,000 per second, and Redis executes 153,860; at full load both send 250,000. With 1,000 tokens a lane
    /// sends 350,000 at 70 % load.
    static let constants = PlanConstants(
        machine: "example", commit: "abc", measuredAt: 1_795_478_400_000, answerMilliseconds: 20, streams: 500,
        workerBytes: 1 << 25,
        jobSizes: [
            .init(
                tokens: 1, jobBytes: 400,
                atOnce: sample(100_000, 4, jobSize: 1), delayed: sample(20_000, 8, jobSize: 1)),
            .init(
                tokens: 1000, jobBytes: 80_000,
                atOnce: sample(100_000, 2, jobSize: 1000), delayed: sample(20_000, 4, jobSize: 1000)),
        ])

    private static func sample(_ rate: Double, _ worker: Double, jobSize: Int) -> PlanConstants.Sample {
        .init(
            perSecond: rate, workerMicroseconds: worker,
            redisMicroseconds: redisCores(rate, jobSize: jobSize, root: 1e-3 / 1.2) / rate * 1e6)
    }

    /// The load of Redis: 1 ms for the root of the jobs per second, which is a fifth more than was measured, 1.8 µs for a
    /// job, and 0.2 µs for a token.
    private static func redisCores(_ rate: Double, jobSize: Int, root: Double = 1e-3) -> Double {
        let jobs = rate / Double(jobSize)
        return root * jobs.squareRoot() + 1.8e-6 * jobs + 2e-7 * rate
    }

    struct Case: Sendable, CustomTestStringConvertible {
        let name: String
        let work: Work
        var given = Given()
        /// Workers, lanes per worker, connections per lane, queues, needed masters.
        let fleet: [Int]
        let bottleneck: CapacityPlan.Bottleneck
        let maximumPerSecond: Double
        let fits: Bool
        var testDescription: String { name }
    }

    static let cases = [
        Case(
            name: "jobs of 1,000 tokens",
            work: Work(tokens: 6_000_000, within: 120_000, jobSize: 1000, latency: 75),
            fleet: [2, 1, 3, 1, 1], bottleneck: .connections, maximumPerSecond: 75_000, fits: true),
        Case(
            name: "one token per job, more than one Redis executes",
            work: Work(tokens: 2_160_000_000, within: 3_600_000, jobSize: 1, latency: 75),
            fleet: [2, 2, 18, 1, 4], bottleneck: .redis, maximumPerSecond: 250_000, fits: false),
        Case(
            name: "the same on a Cluster",
            work: Work(tokens: 2_160_000_000, within: 3_600_000, jobSize: 1, latency: 75, clusterMasters: 6),
            fleet: [2, 2, 18, 4, 4], bottleneck: .connections, maximumPerSecond: 900_000, fits: true),
        Case(
            name: "the same on a Cluster that is too small to have a reserve",
            work: Work(tokens: 2_160_000_000, within: 3_600_000, jobSize: 1, latency: 75, clusterMasters: 3),
            fleet: [2, 2, 18, 3, 4], bottleneck: .redis, maximumPerSecond: 750_000, fits: true),
        Case(
            name: "fewer jobs than lanes",
            work: Work(tokens: 3000, within: 1000, jobSize: 1000, latency: 75), given: Given(workers: 5, lanes: 1),
            fleet: [5, 1, 1, 1, 1], bottleneck: .jobs, maximumPerSecond: 37_500, fits: true),
        Case(
            name: "one notification",
            work: Work(tokens: 1, within: 1000, jobSize: 1, latency: 0),
            fleet: [2, 1, 1, 1, 1], bottleneck: .redis, maximumPerSecond: 250_000, fits: true),
        Case(
            name: "a lane that is too slow",
            work: Work(tokens: 3_000_000, within: 10_000, jobSize: 1, latency: 5, clusterMasters: 2),
            given: Given(workers: 1, lanes: 1),
            fleet: [1, 1, 5, 2, 2], bottleneck: .workers, maximumPerSecond: 250_000, fits: false),
        Case(
            name: "the fleet of the measurement",
            work: Work(tokens: 100_000, within: 10_000, jobSize: 1, latency: 20),
            given: Given(workers: 1, lanes: 1, connections: 1, streams: 500),
            fleet: [1, 1, 1, 1, 1], bottleneck: .connections, maximumPerSecond: 20_000, fits: true),
    ]

    @Test("has the fleet, the bottleneck and the maximum rate", arguments: cases)
    func table(_ one: Case) throws {
        let plan = try CapacityPlan(one.work, given: one.given, Self.constants)
        #expect([plan.workers, plan.lanes, plan.connections, plan.queues, plan.mastersNeeded] == one.fleet)
        #expect(plan.bottleneck == one.bottleneck && plan.fits == one.fits)
        #expect(abs(plan.maximumPerSecond / one.maximumPerSecond - 1) < 1e-9, "\(plan.maximumPerSecond)")
        let milliseconds = 1000 * Double(one.work.tokens) / one.maximumPerSecond
        #expect(abs(Double(plan.shortestTime) - milliseconds) <= 1)
    }

    @Test("has the loads and the memory")
    func loads() throws {
        let plan = try CapacityPlan(Self.cases[0].work, Self.constants)
        #expect(plan.jobs == 6000 && plan.redisBytes == 480_000_000 && plan.workerBytes == 1 << 25)
        // Two lanes with 25,000 per second: 0.05 cores, and 1.5 µs for each.
        #expect(abs(plan.workerCores - 0.175) < 1e-9)
        #expect(abs(plan.redisCores - Self.redisCores(50_000, jobSize: 1000)) < 1e-9)
        #expect(abs(plan.inFlight - 4000) < 1e-6)
    }

    @Test("costs per job and per token are between those of the measured sizes")
    func sizes() throws {
        func redis(_ jobSize: Int, _ rate: Int) throws -> Double {
            let work = Work(tokens: 3600 * rate, within: 3_600_000, jobSize: jobSize, latency: 75)
            return try CapacityPlan(work, Self.constants).redisCores
        }
        for size in [1, 2, 10, 500, 1000] {
            for rate in [1000, 40_000, 200_000] {
                let expected = Self.redisCores(Double(rate), jobSize: size)
                #expect(abs(try redis(size, rate) - expected) < 1e-6, "\(size) tokens, \(rate) per second")
            }
        }
        // A worker divides larger jobs, and each part has all bytes.
        let divided = Self.redisCores(1000, jobSize: 1000) + 1.2 * 6 * 2e-7 * 1000
        #expect(abs(try redis(5000, 1000) - divided) < 1e-9)
        let large = try CapacityPlan(
            Work(tokens: 10_000_000, within: 60_000, jobSize: 100_000, latency: 75), Self.constants)
        #expect(large.jobs == 100 && large.redisBytes == 800_000_000)
        let uneven = try CapacityPlan(Work(tokens: 1001, within: 60_000, jobSize: 1000, latency: 75), Self.constants)
        #expect(uneven.jobs == 2)
    }

    @Test("no part that it chooses is used more than its share, and it fits", arguments: [1, 3, 50, 1000, 4096])
    func shares(_ jobSize: Int) throws {
        for rate in [1, 999, 40_000, 175_001, 3_000_000] {
            for latency in [0, 1, 80, 5000] {
                let work = Work(
                    tokens: 3600 * rate, within: 3_600_000, jobSize: jobSize, latency: latency, clusterMasters: 1000)
                let plan = try CapacityPlan(work, Self.constants)
                let lanes = Double(plan.workers * plan.lanes)
                let streams = lanes * Double(plan.connections * plan.streams)
                let limit = CapacityPlan.share + 1e-9
                #expect(plan.fits && plan.workers >= 2, "\(work)")
                #expect(plan.workerCores / lanes <= limit && plan.inFlight / streams <= limit, "\(work)")
                #expect(plan.redisCores / Double(plan.queues) <= limit && plan.queues == plan.mastersNeeded, "\(work)")
            }
        }
    }

    @Test("samples that show only one cost are used with the higher one")
    func noise() throws {
        var constants = Self.constants
        constants.jobSizes[0].delayed.workerMicroseconds = 3
        let work = Work(tokens: 100_000, within: 1000, jobSize: 1, latency: 0)
        let plan = try CapacityPlan(work, given: Given(workers: 1, lanes: 1), constants)
        #expect(abs(plan.workerCores - 0.4) < 1e-9)
        constants = Self.constants
        constants.jobSizes[0].atOnce.perSecond = 20_000
        let equal = try CapacityPlan(work, given: Given(workers: 1, lanes: 1), constants)
        #expect(abs(equal.workerCores - 0.8) < 1e-9)
    }

    @Test("Redis' load rises with jobs and tokens, whatever was measured, and the highest rate has the load it is for")
    func redisFits() throws {
        var random = SeededGenerator(seed: 39)
        for _ in 0..<500 {
            var constants = Self.constants
            if Bool.random(using: &random) { constants.jobSizes.removeLast() }
            for size in constants.jobSizes.indices {
                for sample in [\PlanConstants.JobSize.atOnce, \.delayed] {
                    constants.jobSizes[size][keyPath: sample].redisMicroseconds *= .random(in: 0.3...3, using: &random)
                }
            }
            func plan(_ rate: Int, _ jobSize: Int) throws -> CapacityPlan {
                try CapacityPlan(
                    Work(tokens: 3600 * rate, within: 3_600_000, jobSize: jobSize, latency: 75), constants)
            }
            let loads = try [1, 100, 10_000, 1_000_000].map { try plan($0, 1).redisCores }
            #expect(loads == loads.sorted() && loads.allSatisfy { $0 > 0 && $0.isFinite })
            #expect(try plan(10_000, 10).redisCores <= plan(10_000, 1).redisCores)
            let highest = try #require(try plan(1, 1).limits[.redis])
            #expect(abs(try plan(Int(highest), 1).redisCores - 1) < 0.001)
        }
    }

    @Test("work and parts out of range are refused by name")
    func refusals() {
        let good = Work(tokens: 1000, within: 1000, jobSize: 1, latency: 80)
        for number in [Int.min, -1, 0, .max] {
            for (name, member) in [
                ("tokens", \Work.tokens), ("within", \.within), ("job size", \.jobSize),
            ] as [(String, WritableKeyPath<Work, Int>)] {
                var work = good
                work[keyPath: member] = number
                #expect(Self.refused(work) == name, "\(number)")
            }
            var cluster = good
            cluster.clusterMasters = number
            #expect(Self.refused(cluster) == "masters")
            #expect(Self.refused(good, Given(workers: number)) == "workers")
            #expect(Self.refused(good, Given(lanes: number)) == "lanes")
            #expect(Self.refused(good, Given(connections: number)) == "connections")
            #expect(Self.refused(good, Given(streams: number)) == "streams")
        }
        for number in [Int.min, -1, .max] {
            var slow = good
            slow.latency = number
            #expect(Self.refused(slow) == "latency")
        }
        #expect(Self.refused(good) == nil)
    }

    private static func refused(_ work: Work, _ given: Given = Given()) -> String? {
        do {
            _ = try CapacityPlan(work, given: given, constants)
            return nil
        } catch { return error.name }
    }

    @Test("the largest work with the worst constants is still a plan with finite numbers")
    func extremes() throws {
        let worst = PlanConstants.Sample(perSecond: 1, workerMicroseconds: 1e6, redisMicroseconds: 1e6)
        var constants = Self.constants
        constants.streams = 10_000
        constants.jobSizes = [.init(tokens: 100_000, jobBytes: 1e12, atOnce: worst, delayed: worst)]
        let works = [
            Work(tokens: 1_000_000_000_000, within: 1000, jobSize: 1, latency: 600_000),
            Work(tokens: 1_000_000_000_000, within: 1000, jobSize: 1_000_000, latency: 0, clusterMasters: 1000),
            Work(tokens: 1, within: 31_536_000_000, jobSize: 1_000_000, latency: 600_000),
        ]
        for work in works {
            for given in [Given(), Given(workers: 1, lanes: 1, connections: 1, streams: 1), Given(connections: 1)] {
                for constants in [Self.constants, constants] {
                    let plan = try CapacityPlan(work, given: given, constants)
                    let connections = plan.workers.multipliedReportingOverflow(by: plan.lanes * plan.connections)
                    #expect(!connections.overflow && plan.workers >= 1 && plan.lanes >= 1 && plan.connections >= 1)
                    #expect(plan.maximumPerSecond > 0 && plan.maximumPerSecond.isFinite)
                    #expect(plan.workerCores.isFinite && plan.redisCores.isFinite && plan.inFlight.isFinite)
                    #expect(plan.redisBytes > 0 && plan.shortestTime > 0 && !plan.advice.isEmpty)
                }
            }
        }
    }

    // MARK: Constants

    @Test("the program's constants predict the rate of their own measurements within 25 %")
    func program() throws {
        let constants = try PlanConstants.ofProgram()
        #expect(constants.measuredAt > 0 && !constants.machine.isEmpty && !constants.commit.isEmpty)
        #expect(constants.jobSizes.map(\.tokens).contains(1) && constants.jobSizes.map(\.tokens).contains(1000))
        for size in constants.jobSizes {
            let work = Work(
                tokens: 1_000_000, within: 1_000_000, jobSize: size.tokens, latency: Int(constants.answerMilliseconds))
            let given = Given(workers: 1, lanes: 1, connections: 1, streams: constants.streams)
            let plan = try CapacityPlan(work, given: given, constants)
            #expect(plan.bottleneck == .connections)
            #expect(abs(plan.maximumPerSecond / size.delayed.perSecond - 1) < 0.25, "\(size.tokens)")
        }
    }

    @Test("constants are the same after they were written and read")
    func coding() throws {
        #expect(try PlanConstants.read(try JSONEncoder().encode(Self.constants)) == Self.constants)
    }

    @Test(
        "constants that no measurement can have are refused, with the member",
        arguments: [
            ("per_second", "0"), ("per_second", "-1"), ("per_second", "1e300"), ("worker_us", "0"), ("worker_us", "-4"),
            ("worker_us", "1e300"), ("redis_us", "0"), ("redis_us", "1e300"), ("job_bytes", "-400"),
            ("job_bytes", "1e300"), ("streams", "0"), ("answer_ms", "0"), ("answer_ms", "1e300"),
            ("worker_bytes", "-1"), ("tokens", "9223372036854775807"), ("tokens", "0"), ("streams", "\"many\""),
        ])
    func absurd(_ member: String, _ value: String) throws {
        let text = String(decoding: try JSONEncoder().encode(Self.constants), as: UTF8.self)
        let name = "\"\(member)\":"
        let start = try #require(text.range(of: name)).upperBound
        let end = try #require(text[start...].firstIndex { $0 == "," || $0 == "}" })
        let changed = text.replacingCharacters(in: start..<end, with: value)
        let error = #expect(throws: PlanConstants.Invalid.self) { try PlanConstants.read(Array(changed.utf8)) }
        #expect(error?.description.contains(member) == true, "\(String(describing: error))")
    }

    @Test("constants without a size, in another order, or of another kind are refused")
    func incomplete() throws {
        var none = Self.constants
        none.jobSizes = []
        var reversed = Self.constants
        reversed.jobSizes.reverse()
        for constants in [none, reversed] {
            let data = try JSONEncoder().encode(constants)
            #expect(throws: PlanConstants.Invalid.self) { try PlanConstants.read(data) }
        }
        for text in ["", "{}", "[]", "null", "5", "{\"job_sizes\":[]}"] {
            #expect(throws: PlanConstants.Invalid.self, "\(text)") { try PlanConstants.read(Array(text.utf8)) }
        }
    }
}
