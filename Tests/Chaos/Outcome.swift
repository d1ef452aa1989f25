import Foundation

/// The outcome of a run, as text and as JSON.
struct Outcome {
    let options: ChaosRun.Options
    let plan: Plan
    /// The duration from the beginning of the run to the end of the drain.
    let seconds: Double
    let balance: Balance
    let fleet: Fleet.History
    let producer: Producer.Progress

    var isBalanced: Bool { balance.problems.isEmpty }

    /// The number of times that each fault happened.
    var faults: [String: Int] { Dictionary(plan.faults.map { ("\($0.place): \($0.name)", 1) }, uniquingKeysWith: +) }

    /// The accounts as a table, and their disagreements.
    var text: String {
        var lines = ["", row("", "Redis", "APNs", "by token")]
        let (sums, counters, simulator) = (balance.sums, balance.counters, balance.simulator)
        func count(_ name: String) -> Int { counters[name] ?? 0 }
        lines += [
            row("\(group(balance.jobs)) jobs, notifications", nil, nil, balance.notifications),
            row("delivered", count("delivered"), nil, sums.accepted - balance.acceptedThenLapsed),
            row("  accepted by APNs", nil, simulator.distinctTokens, sums.accepted + sums.acceptedAndDead),
            row("copies of unique jobs, not sent", count("dropped:Duplicate"), nil, sums.copies),
            row("invalid tokens", count("invalid_token") + count("suppressed"), nil, sums.invalid),
            row("dead-lettered", count("dead") + sums.uncountedDead, nil, sums.dead + sums.acceptedAndDead),
            row("  though APNs may have taken it", nil, nil, sums.acceptedAndDead),
            row(
                "expired or dropped", count("expired") + count("dropped") - count("dropped:Duplicate"), nil,
                sums.lapsed + balance.acceptedThenLapsed
            ),
            row("  though APNs may have taken it", nil, nil, balance.acceptedThenLapsed),
            row("of the campaign, in all queues", balance.campaign.ended, nil, sums.ofCampaign),
            "",
            row("requests", nil, simulator.requests, nil),
            row("retried", count("retried"), nil, nil),
            row("jobs taken over from the dead", count("reclaimed"), nil, nil),
            row("sent again, perhaps for nothing", count("possible_duplicates"), nil, nil),
            row("  because no answer came", balance.unanswered, nil, nil),
            row("  because a worker was gone", balance.takenOver, nil, nil),
            row("  because APNs took it back", nil, simulator.acceptedTakenBack, nil),
            row("accepted twice or more often", nil, simulator.duplicates, sums.duplicates),
            row("pushes repeated", producer.repeated, nil, nil),
            row("  that had been made after all", producer.alreadyMade, nil, nil),
            row("  that Redis had confirmed and forgotten", producer.lostByRedis, nil, nil),
            row("workers started", fleet.started, nil, nil),
            "",
            "  from push to acceptance, at most: p50 \(delay(50)), p99 \(delay(99)), all \(delay(100))",
            "",
            "  \(plan.faults.count) faults:",
        ]
        lines += faults.sorted { $0.key < $1.key }.map { "    \($0.key) × \($0.value)" }
        lines.append("")
        if isBalanced {
            let run = "\(options.name), seed \(options.seed), \(Int(seconds)) s"
            lines.append(
                "  balanced: every notification has one end, nothing is left, every duplicate has its cause (\(run))")
        } else {
            lines.append("  NOT balanced (\(options.name), seed \(options.seed)):")
            for (what, sort) in balance.problems.sorts.sorted(by: { $0.key < $1.key }) {
                lines.append("  \(what): \(sort.count)")
                lines += sort.examples.map { "    \($0)" }
            }
        }
        return lines.joined(separator: "\n") + "\n"
    }

    /// Returns the time within which a percentage of the timed jobs were accepted.
    private func delay(_ percent: Int) -> String {
        let all = balance.delays.values.reduce(0, +)
        var seen = 0
        for (bound, count) in balance.delays.sorted(by: { $0.key < $1.key }) {
            seen += count
            if seen * 100 >= all * percent { return "\(bound) ms" }
        }
        return "-"
    }

    private func row(_ name: String, _ columns: String...) -> String {
        name.padded(to: 42) + columns.map { $0.aligned(to: 12) }.joined()
    }

    private func row(_ name: String, _ redis: Int?, _ apns: Int?, _ tokens: Int?) -> String {
        "  " + name.padded(to: 40) + [redis, apns, tokens].map { ($0.map(group) ?? "").aligned(to: 12) }.joined()
    }

    private func group(_ number: Int) -> String {
        var text = String(abs(number))
        var parts: [String] = []
        while text.count > 3 {
            parts.insert(String(text.suffix(3)), at: 0)
            text = String(text.dropLast(3))
        }
        return (number < 0 ? "-" : "") + ([text] + parts).joined(separator: ",")
    }
}

extension Fault {
    fileprivate var place: String {
        switch target {
        case .worker: "worker"
        case .redisOf: "way to Redis"
        case .apnsOf: "way to APNs"
        case .redis: "Redis"
        }
    }
}

extension String {
    fileprivate func padded(to width: Int) -> String { self + String(repeating: " ", count: max(0, width - count)) }
    fileprivate func aligned(to width: Int) -> String { String(repeating: " ", count: max(0, width - count)) + self }
}

// MARK: As JSON

extension Outcome: Encodable {
    private struct Key: CodingKey {
        let stringValue: String
        var intValue: Int? { nil }

        init(stringValue: String) { self.stringValue = stringValue }
        init?(intValue: Int) { nil }
    }

    func encode(to encoder: any Encoder) throws {
        let simulator = balance.simulator
        let members: [String: any Encodable] = [
            "topology": options.topology.rawValue, "queues": options.queue.names.count,
            "durability": options.durability.rawValue, "seed": options.seed,
            "workers": options.workers, "poison": options.poison, "seconds": options.seconds, "drainedAfter": seconds,
            "jobs": balance.jobs,
            "notifications": balance.notifications, "balanced": isBalanced, "redis": balance.counters,
            "ends": balance.sums, "campaign": balance.campaign, "duplicates": balance.sums.duplicates,
            "duplicatesExplained": balance.explained,
            "unanswered": balance.unanswered, "takenOver": balance.takenOver, "takenBack": simulator.acceptedTakenBack,
            "requests": simulator.requests, "answers": simulator.answers, "goAways": simulator.goAways,
            "connections": simulator.connections, "pushesRepeated": producer.repeated,
            "pushesLostByRedis": producer.lostByRedis, "workersStarted": fleet.started, "workersKilled": fleet.killed,
            "lostClaims": fleet.accounts.reduce(0) { $0 + $1.lostClaims }, "logLines": fleet.logLines,
            "faults": faults, "problems": balance.problems.sorts,
        ]
        var page = encoder.container(keyedBy: Key.self)
        for (name, value) in members { try page.encode(value, forKey: Key(stringValue: name)) }
    }
}
