import NIOCore
import PushQueue
import Testing

@testable import PushWorker

/// Each fault, in different numbers, beside good notifications of the same app and queue. No fault may stop the good notifications.
@Suite("A bad thing beside good ones, in a simulation", .serialized)
struct BlameMatrixTests {
    /// Plans in which each pair of values of two dimensions occurs.
    static let pairs: [BlamePlan] = {
        var left: [(fault: Int, bad: Int, good: Int, campaign: Int, fleet: Int)] = []
        for fault in BlamePlan.Fault.main.indices {
            for bad in BlamePlan.Bad.allCases.indices {
                left.append(
                    (fault, bad, (fault + bad) % 3, (fault / 3 + bad / 3 + bad) % 2, (fault + 2 * bad + bad / 3) % 3))
            }
        }
        return left.map { row in
            BlamePlan(
                BlamePlan.Fault.main[row.fault], BlamePlan.Bad.allCases[row.bad],
                beside: BlamePlan.Good.allCases[row.good], hasCampaign: row.campaign == 1,
                BlamePlan.Fleet.allCases[row.fleet])
        }
    }()

    /// Each fault once, a thousand times, and in a job with ten thousand tokens.
    static let extremes = BlamePlan.Fault.allCases.flatMap { fault in
        [
            BlamePlan(fault, .once), BlamePlan(fault, .thousand, hasCampaign: true, .workers),
            BlamePlan(fault, .tenThousandTokens),
        ]
    }

    @Test("Each pair of dimensions contains all values.")
    func coverage() {
        var found: Set<String> = []
        for plan in Self.pairs {
            let values = [
                "\(plan.fault)", "\(plan.bad)", "\(plan.good)", "campaign \(plan.hasCampaign)", "\(plan.fleet)",
            ]
            for one in values.indices {
                for other in values.indices where one < other { found.insert("\(values[one]) \(values[other])") }
            }
        }
        let sizes = [8, 6, 3, 2, 3]
        let all = sizes.indices.reduce(0) { sum, one in
            sum + sizes[(one + 1)...].reduce(0) { $0 + sizes[one] * $1 }
        }
        #expect(found.count == all)
    }

    @Test(
        "Good ones are submitted in time, and bad ones end as documented.", arguments: pairs + extremes + [.saturated])
    func beside(_ plan: BlamePlan) throws {
        let mistakes = try FleetSimulation.mistakes(plan, on: try SimulatedServer())
        #expect(mistakes == [])
    }

    @Test(
        "An outage costs few requests, makes no dead letter, and ends soon.",
        arguments: [.serviceUnavailable, .noReason, .silence, .badDeviceToken, .invalidProviderToken].map {
            BlamePlan.outage($0)
        } + [
            .partialOutage(.serviceUnavailable, accepted: 1), .partialOutage(.silence, accepted: 1),
            .restart(.serviceUnavailable), .restart(.silence), .restart(.invalidProviderToken),
            .outageInBatch(.serviceUnavailable, of: .badDeviceToken), .outageInBatch(.silence, of: .badDeviceToken),
        ])
    func outages(_ plan: BlamePlan) throws {
        let mistakes = try FleetSimulation.mistakes(plan, on: try SimulatedServer())
        #expect(mistakes == [])
    }

    @Test(
        "A proxy that refuses all of one worker slows no other.",
        arguments: [.invalidProviderToken, .forbidden, .noReason, .badGateway] as [BlamePlan.Fault])
    func proxies(_ fault: BlamePlan.Fault) throws {
        let mistakes = try FleetSimulation.mistakes(.proxy(fault), on: try SimulatedServer())
        #expect(mistakes == [])
    }

    @Test(
        "A credential that is refused only on old connections is used on a younger one.",
        arguments: [.oneLane, .workers] as [BlamePlan.Fleet])
    func stuckConnections(_ fleet: BlamePlan.Fleet) throws {
        let mistakes = try FleetSimulation.mistakes(
            .stuckConnections(.invalidProviderToken, fleet), on: try SimulatedServer())
        #expect(mistakes == [])
    }
}
