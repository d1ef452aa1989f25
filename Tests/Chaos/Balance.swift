import TestSupport

/// Compares the accounts of Redis and APNs with the outcome of every notification.
struct Balance {
    let sums: Ledger.Sums
    let notifications: Int
    let jobs: Int
    let counters: [String: Int]
    let campaign: QueueRemains.Campaign
    let delays: [Int: Int]
    let simulator: SimulatorProcess.Account
    private(set) var problems: Problems

    /// Notifications that were sent again because the answer to an earlier request never arrived.
    let unanswered: Int
    /// Notifications of jobs that were reclaimed from lanes whose lease had expired, counted once per reclaim.
    let takenOver: Int

    init(
        _ ledger: Ledger, _ remains: QueueRemains, _ simulator: SimulatorProcess.Account,
        _ options: ChaosRun.Options, _ plan: Plan, _ limit: CampaignLimit, problems others: Problems
    ) {
        sums = ledger.sums
        notifications = ledger.entries.count
        jobs = ledger.maker.count
        counters = remains.counters
        campaign = remains.campaign
        delays = remains.delays
        self.simulator = simulator
        problems = others
        problems.add(ledger.problems)
        takenOver = remains.count("possible_duplicates:reclaimed")
        unanswered = remains.count("possible_duplicates") - takenOver
        for key in remains.keysLeft { problems.add("left in Redis", key) }
        compare(remains)
        compareDuplicates(options)
        compareCampaign(options, plan, limit, total: ledger.maker.campaignTotal)
    }

    /// Accepted notifications that Redis counts as expired or dropped, because their answers were lost.
    var acceptedThenLapsed: Int { sums.accepted - (counters["delivered"] ?? 0) }

    /// The maximum number of duplicates that are explained.
    var explained: Int { (counters["possible_duplicates"] ?? 0) + simulator.acceptedTakenBack + sums.poison * 6 }

    private mutating func compare(_ remains: QueueRemains) {
        let dead = remains.count("dead") + sums.uncountedDead
        let lapsed = remains.count("expired") + remains.count("dropped") - remains.count("dropped:Duplicate")
        // Suppressed: the token was in the set when its job was claimed again, because the worker died before the settlement.
        let invalid = remains.count("invalid_token") + remains.count("suppressed")
        let ended = remains.count("delivered") + invalid + dead + lapsed
        expect(ended, notifications, "Redis counts other ends than there are notifications")
        expect(invalid, sums.invalid, "Redis counts other invalid tokens than the set has")
        expect(
            remains.invalidTokenDetails, sums.invalid, "the details of invalid tokens are of others than the set has")
        expect(dead, sums.dead + sums.acceptedAndDead, "Redis counts other dead letters than there are")
        expect(
            remains.count("dropped:Duplicate"), sums.copies, "Redis counts other duplicates than jobs were pushed twice"
        )
        expect(simulator.accepted - simulator.duplicates, simulator.distinctIDs, "APNs' own account does not add up")
        let distinct = sums.accepted + sums.acceptedAndDead
        expect(simulator.distinctTokens, distinct, "APNs accepted others than the notifications that ended as accepted")
        if acceptedThenLapsed < 0 {
            problems.add("delivered, says Redis, but APNs never accepted it", "\(-acceptedThenLapsed) notifications")
        } else if acceptedThenLapsed > min(lapsed, sums.acceptedAndMayLapse) {
            problems.add("accepted, but Redis counts no end of it", "\(acceptedThenLapsed) notifications")
        }
    }

    private mutating func compareDuplicates(_ options: ChaosRun.Options) {
        // A failover or a power cut can lose the last claims and settlements. Runs with such faults do not check duplicates.
        guard options.topology == .single, options.durability == .strict else { return }
        expect(simulator.duplicates, sums.duplicates, "notifications were sent again under another apns-id")
        if sums.duplicates > explained {
            problems.add("duplicates that nothing explains", "\(sums.duplicates - explained) of \(sums.duplicates)")
        }
    }

    private mutating func compareCampaign(
        _ options: ChaosRun.Options, _ plan: Plan, _ limit: CampaignLimit, total: Int
    ) {
        expect(campaign.total, total, "the campaign has another total than was pushed")
        expect(campaign.ended, sums.ofCampaign, "the campaign counts other ends than it has notifications")
        // A failover or a power cut can lose reservations of the rate. Workers then exceed the rate.
        guard options.topology == .single, options.durability == .strict else { return }
        let (time, shortest) = (campaign.updatedAt - limit.setAfter, limit.shortestTime(of: campaign.ended, plan))
        if time < shortest {
            let what = "\(campaign.ended) in \(time) ms, and not in at least \(shortest) ms"
            problems.add("the queues together sent more of the campaign than its limit", what)
        }
    }

    private mutating func expect(_ found: Int, _ expected: Int, _ what: String) {
        if found != expected { problems.add(what, "\(found), not \(expected)") }
    }
}
