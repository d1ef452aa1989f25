import Foundation
import Operations
import TestSupport
import Testing

@testable import PushQueue

/// The real engine and the real scripts under all faults of a fleet (see ``FleetSimulation``).
@Suite("A fleet in a simulation", .serialized)
struct FleetSimulationTests {
    @Test("everything ends once, nothing is lost, and the counters are right, if Redis keeps what it confirms")
    func durable() throws { try FleetSimulation.search(.durable) }

    @Test("the same seed gives the same run")
    func repeats() throws {
        let server = try SimulatedServer()
        let traces = try [1, 1, 2].map { (seed: UInt64) in
            let faults = FleetSimulation.Faults.all.union([.shares, .replaces])
            let simulation = try FleetSimulation(seed: seed, .init(steps: 4000, faults: faults), on: server)
            try simulation.run()
            return [simulation.time.trace, UInt64(simulation.time.steps)]
        }
        #expect(traces[0] == traces[1])
        #expect(traces[0] != traces[2])
    }

    /// Replays the run named by a failure, and logs its events.
    @Test("a run is replayed", .enabled(if: environment("APNS_WORKER_SIMULATION_REPLAY") != nil))
    func replay() throws {
        let text = environment("APNS_WORKER_SIMULATION_REPLAY") ?? ""
        let (seed, options) = try #require(FleetSimulation.Options.replaying(text), "see FleetSimulation.swift")
        let simulation = try FleetSimulation(seed: seed, options, on: try SimulatedServer())
        defer { print(simulation.summary) }
        try simulation.run()
    }

    @Test("everything ends although APNs refuses an app again and again")
    func probes() throws {
        let server = try SimulatedServer()
        for seed in 1...5 as ClosedRange<UInt64> {
            let options = FleetSimulation.Options(steps: 4000, faults: .appRefusals, faultInterval: 50...500)
            try FleetSimulation(seed: seed, options, on: server).run()
        }
    }
}

/// A separate suite, so that its search runs in parallel with the search of ``FleetSimulationTests``.
@Suite("A fleet in a simulation whose Redis loses data")
struct RollbackSimulationTests {
    @Test("nothing is lost except what Redis loses, if Redis returns to older data")
    func rollbacks() throws { try FleetSimulation.search(.all) }
}

extension FleetSimulation {
    /// Runs half a million steps from the first seed on. For a long search, `APNS_WORKER_SIMULATION_STEPS` and
    /// `APNS_WORKER_SIMULATION_SEED` set other numbers.
    fileprivate static func search(_ faults: Faults) throws {
        let steps = environment("APNS_WORKER_SIMULATION_STEPS").flatMap { Int($0) } ?? 500_000
        let firstSeed = environment("APNS_WORKER_SIMULATION_SEED").flatMap { UInt64($0) } ?? 1
        let server = try SimulatedServer()
        var seed = firstSeed
        var done = 0
        while done < steps {
            // In half of the runs the queues sort their jobs, and in half newer jobs replace others.
            let faults = faults.union(seed.isMultiple(of: 2) ? .shares : []).union(seed / 2 % 2 == 0 ? .replaces : [])
            let simulation = try FleetSimulation(seed: seed, .init(steps: 12_000, faults: faults), on: server)
            do { try simulation.run() } catch { Issue.record("\(error)") }
            done += simulation.time.steps
            seed += 1
            if seed % 100 == 0 { print("\(done) steps, the seeds \(firstSeed) to \(seed - 1)") }
        }
        print("\(done) steps, the seeds \(firstSeed) to \(seed - 1)")
    }
}

/// The simulation must detect violations: it must fail if any rule of the protocol is removed.
@Suite("Mutations of the protocol", .serialized)
struct ProtocolMutationTests {
    @Test("each mutation of a script changes one")
    func patches() {
        let sources = (QueueScript.ofWorkers + QueueScript.ofOperators).map {
            String(decoding: $0.source, as: UTF8.self)
        }
        for mutation in Mutation.allCases {
            guard let text = mutation.patch?.find else { continue }
            #expect(sources.contains { $0.contains(text) }, "\(mutation)")
        }
    }

    @Test("without any one of the protocol's rules, the simulation fails", arguments: Mutation.allCases)
    fileprivate func mutation(_ mutation: Mutation) throws {
        let server = try SimulatedServer()
        if let plan = mutation.plan {
            #expect(try FleetSimulation.mistakes(plan, on: server) == [])
            let mistakes = try FleetSimulation.mistakes(plan, mutation, on: try SimulatedServer())
            print("\(mutation): \(mistakes)")
            #expect(mistakes != [], "\(mutation) is not noticed")
            return
        }
        for seed in mutation.firstSeed..<(mutation.firstSeed + mutation.seedCount) {
            let options = FleetSimulation.Options(
                steps: mutation.steps, faults: mutation.faults, mutation: mutation,
                faultInterval: mutation.faultInterval)
            let simulation = try FleetSimulation(seed: seed, options, on: server)
            do {
                try simulation.run()
            } catch {
                print("\(mutation), seed \(seed): \(error)")
                // The mutation rather than the seed must cause the failure.
                var control = options
                control.mutation = nil
                control.steps = min(options.steps, simulation.time.steps)
                try FleetSimulation(seed: seed, control, on: server).run()
                return
            }
        }
        Issue.record("\(mutation) is not noticed")
    }
}

extension Mutation {
    /// The seed of the first run, which is known to detect the mutation. After a change of a script, another seed may detect it. Then enter
    /// the seed that a run prints, because each seed before it costs a second.
    fileprivate var firstSeed: UInt64 {
        switch self {
        case .constantStamp: 108
        case .reclaimIgnoresLease: 100
        case .trustsOldFilters: 26
        case .claimsAnySize, .enforcesDeadlinesLate: 9
        case .claimGivesNumbersAgain, .countsMinutesAgain, .grantsRateEarly: 6
        case .confirmsFailedSettlements, .settlesOnlyWholeJobs, .skipsRecovery: 5
        case .settlesAnyClaim, .stopsWhenMemoryIsFull: 4
        case .confirmsRefusedSettlements, .dropsResentSettlements, .leavesAcceptedTokens, .reclaimForgetsOrigin,
            .reclaimsAtOnce:
            2
        default: 1
        }
    }

    /// The number of seeds of which one must detect the mutation.
    fileprivate var seedCount: UInt64 {
        [.constantStamp, .forgetsThrottles, .hidesThrottles].contains(self) ? 300 : 30
    }

    /// The steps of a run. A lane reclaims after 15 s without a gap, and must then meet a lane that resumes. An app exceeds its rate if
    /// enough of its jobs wait.
    fileprivate var steps: Int {
        switch self {
        case .reclaimIgnoresLease, .grantsRateEarly, .settlesOnlyWholeJobs, .leavesAcceptedTokens: 20_000
        default: 6000
        }
    }

    fileprivate var faultInterval: ClosedRange<Int64> {
        switch self {
        case .constantStamp: 20...375
        case .lateClaimTakesJobs: 10...100
        case .reclaimIgnoresLease: 100...2000
        default: 50...1000
        }
    }

    /// The faults that the rule protects against.
    fileprivate var faults: FleetSimulation.Faults {
        switch self {
        case .constantStamp: [.breaks, .rollbacks, .stops]
        case .skipsRecovery: [.breaks, .rollbacks]
        case .lateClaimTakesJobs, .claimGivesNumbersAgain, .dropsResentSettlements, .confirmsFailedSettlements,
            .settlesAnyClaim, .countsMinutesAgain:
            .breaks
        case .confirmsRefusedSettlements: .refusals
        case .reclaimIgnoresLease: [.stops, .breaks]
        case .claimsNewestFirst, .claimsAnySize: .outages
        case .stopsWhenMemoryIsFull: .fullMemory
        case .ignoresFleetToken: .drains
        case .recoversOthersClaims, .reclaimsAtOnce: [.breaks, .crashes, .outages]
        case .sharesNoProviderToken: .appRefusals
        case .forgetsThrottles, .hidesThrottles, .leavesAcceptedTokens: .apns
        case .trustsOldFilters: [.apns, .breaks, .outages, .stops]
        case .grantsRateEarly: [.outages, .stops]
        case .settlesOnlyWholeJobs: .crashes
        case .enforcesDeadlinesLate: .stops
        case .sortLosesJobs, .sortedJobsStay: [.outages, .shares]
        case .announcesAgain: [.apns, .crashes, .replaces]
        case .sendsReplaced, .dropsNewest: [.apns, .replaces]
        default: .durable
        }
    }
}

private func environment(_ name: String) -> String? { ProcessInfo.processInfo.environment[name] }
