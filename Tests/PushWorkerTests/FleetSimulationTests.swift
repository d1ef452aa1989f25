import Foundation
import TestSupport
import Testing

/// The real engine and the real scripts, whatever happens to a fleet (see ``FleetSimulation``).
@Suite("A fleet in a simulation", .serialized)
struct FleetSimulationTests {
    /// The number of steps of all runs together; the variable `APNS_WORKER_SIMULATION_STEPS` sets another for a long run.
    private static let steps = Int(environment("APNS_WORKER_SIMULATION_STEPS") ?? "") ?? 100_000
    /// The steps of a run before its faults end.
    private static let stepsOfRun = 8000
    /// The first seed, to search elsewhere.
    private static let firstSeed = UInt64(environment("APNS_WORKER_SIMULATION_SEED") ?? "") ?? 1

    @Test("everything ends once, nothing is lost, and the counters are right, if Redis keeps what it confirms")
    func durable() throws {
        try search(.durable, steps: Self.steps / 2)
    }

    @Test("nothing is lost but what Redis loses, if Redis goes back in time")
    func rollbacks() throws {
        try search(.all, steps: Self.steps / 2)
    }

    private func search(_ faults: FleetSimulation.Faults, steps: Int) throws {
        let server = try SimulatedServer()
        var seed = Self.firstSeed
        var done = 0
        while done < steps {
            let simulation = try FleetSimulation(
                seed: seed, .init(steps: Self.stepsOfRun, faults: faults, isVerbose: isVerbose), on: server)
            do { try simulation.run() } catch { Issue.record("\(error)") }
            if isVerbose { print(simulation.summary) }
            done += simulation.steps
            seed += 1
        }
    }

    @Test("the same seed gives the same run")
    func replay() throws {
        let server = try SimulatedServer()
        let traces = try [1, 1, 2].map { (seed: UInt64) in
            let simulation = try FleetSimulation(seed: seed, .init(steps: 4000, faults: .all), on: server)
            try simulation.run()
            return [simulation.trace, UInt64(simulation.steps)]
        }
        #expect(traces[0] == traces[1])
        #expect(traces[0] != traces[2])
    }

    @Test("without any one of the protocol's rules, the simulation fails", arguments: Mutation.allCases)
    fileprivate func mutation(_ mutation: Mutation) throws {
        if let only = environment("APNS_WORKER_SIMULATION_MUTATION"), !only.contains("\(mutation)") { return }
        let server = try SimulatedServer()
        for seed in 1...UInt64(mutation.seeds) {
            let options = FleetSimulation.Options(
                steps: 6000, faults: mutation.faults, mutation: mutation,
                faultInterval: mutation.faultInterval)
            let simulation = try FleetSimulation(seed: seed, options, on: server)
            do {
                try simulation.run()
            } catch {
                if isVerbose { print("\(mutation): \(error)") }
                // It is the mutation that fails, and not the seed.
                var control = options
                control.mutation = nil
                try FleetSimulation(seed: seed, control, on: server).run()
                return
            }
        }
        Issue.record("\(mutation) is not noticed")
    }
}

extension Mutation {
    /// The number of seeds within which it is found.
    fileprivate var seeds: Int { self == .constantStamp ? 60 : 30 }

    fileprivate var faultInterval: ClosedRange<Int64> {
        switch self {
        case .constantStamp: 20...375
        case .lateClaimTakesJobs: 10...100
        default: 50...1000
        }
    }

    /// The faults that the rule is for.
    fileprivate var faults: FleetSimulation.Faults {
        switch self {
        case .constantStamp: [.breaks, .rollbacks, .stops]
        case .skipsRecovery: [.breaks, .rollbacks]
        case .lateClaimTakesJobs, .claimGivesNumbersAgain, .dropsResentSettlements, .confirmsFailedSettlements,
            .settlesAnyClaim:
            .breaks
        case .reclaimIgnoresLease: [.stops, .breaks]
        default: .durable
        }
    }
}

/// Prints what happens.
private let isVerbose = environment("APNS_WORKER_SIMULATION_VERBOSE") != nil

private func environment(_ name: String) -> String? { ProcessInfo.processInfo.environment[name] }
