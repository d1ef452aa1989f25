import NIOCore
import PushQueue
import Testing

@testable import PushWorker

/// One bad thing never stops a good one: all faults, in all numbers, beside good notifications of the same app and queue.
@Suite("A bad thing beside good ones, in a simulation", .serialized)
struct BlameMatrixTests {
    /// Rows that contain each pair of values of two dimensions.
    static let pairs: [BlamePlan] = {
        var left: [(fault: Int, bad: Int, good: Int, campaign: Int, fleet: Int)] = []
        for fault in BlamePlan.Fault.main.indices {
            for bad in BlamePlan.Bad.allCases.indices {
                left.append((fault, bad, (fault + bad) % 3, (fault / 3 + bad / 3 + bad) % 2, (fault + 2 * bad + bad / 3) % 3))
            }
        }
        return left.map { row in
            BlamePlan(
                BlamePlan.Fault.main[row.fault], BlamePlan.Bad.allCases[row.bad],
                beside: BlamePlan.Good.allCases[row.good], hasCampaign: row.campaign == 1,
                BlamePlan.Fleet.allCases[row.fleet])
        }
    }()

    /// Each fault in its extremes.
    static let extremes = BlamePlan.Fault.allCases.flatMap { fault in
        [
            BlamePlan(fault, .once), BlamePlan(fault, .fivePercent),
            BlamePlan(fault, .thousand, hasCampaign: true, .workers),
            BlamePlan(fault, .tenThousandTokens),
        ]
    }

    /// The milliseconds within which a good notification must be submitted; `nil` where it can't be told from bad ones,
    /// because nearly all of its group is bad.
    static func limit(_ plan: BlamePlan) -> Int64? {
        guard !plan.hasCampaign else { return 1000 }
        switch (plan.bad, plan.good) {
        case (.once, _), (.fivePercent, _), (.tenThousandTokens, _), (_, .thousandPerSecond): return 1000
        case (.thousand, .eightPerSecond): return 10_000
        case (.eachSecond, .eightPerSecond), (.thirtyPerSecond, .eightPerSecond): return 1000
        case (_, .perMinute): return nil
        }
    }

    @Test("Each pair of dimensions contains all values.")
    func coverage() {
        var found: Set<String> = []
        for plan in Self.pairs {
            let values = [
                "\(plan.fault)", "\(plan.bad)", "\(plan.good)", "campaign \(plan.hasCampaign)", "\(plan.fleet)",
            ]
            for one in values.indices { for other in values.indices where one < other { found.insert("\(values[one]) \(values[other])") } }
        }
        let sizes = [8, 6, 3, 2, 3]
        let all = sizes.indices.reduce(0) { sum, one in
            sum + sizes[(one + 1)...].reduce(0) { $0 + sizes[one] * $1 }
        }
        #expect(found.count == all)
    }

    @Test("Good ones are submitted in time.", arguments: pairs + extremes)
    func beside(_ plan: BlamePlan) throws {
        let run = try FleetSimulation(seed: 1, .init(plan: plan), on: try Self.server.get()).runPlan()
        // Those of the last moment may not have had their turn.
        let open = run.waiting.count
        let late = run.delays.filter { $0.delay > Self.limit(plan) ?? .max }
        #expect(late.isEmpty, "\(late.count) of \(run.goodCount), at most \(late.map(\.delay).max() ?? 0) ms")
        if Self.limit(plan) == 1000 { #expect(open <= 1 + run.goodCount / 50, "\(open) of \(run.goodCount) wait") }
        #expect(run.notReady == 0)
    }

    static let server = Result { try SimulatedServer() }
}
