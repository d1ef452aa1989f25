import PrintableText
import PushQueue
import Redis

/// A campaign in all of its queues together, for a report.
package struct CampaignSummary: Sendable {
    package var campaign: String
    package var finished: Bool
    package var ended: Int
    package var total, left, latencyP50Ms, latencyP99Ms: Int?
    package var outcomes, deadReasons, retryReasons: [String: Int]
    package var deliveredShare, invalidShare, endedPerSecond: Double?
    package var startedAt, updatedAt, finishedAt, durationMs: Int64?
    package var rates: [CampaignPace.Point]
    package var queues: [CampaignStatus]
    package var partial: Bool?

    /// - Parameters:
    ///   - queues: the campaign in each queue that knows it; at least one.
    ///   - isPartial: true if a queue could not be read.
    package init(_ queues: [CampaignStatus], isPartial: Bool = false) {
        func sum(_ counts: (CampaignStatus) -> [String: Int]) -> [String: Int] {
            queues.reduce(into: [:]) { $0.merge(counts($1)) { Int(bounding: Double($0) + Double($1)) } }
        }
        self.queues = queues
        rates = CampaignPace.points(of: queues.flatMap(\.periods))
        campaign = queues.first?.campaign ?? ""
        partial = isPartial ? true : nil
        finished = !isPartial && !queues.isEmpty && queues.allSatisfy { $0.finishedAt != nil }
        let totals = queues.compactMap(\.total)
        total = !isPartial && totals.count == queues.count ? totals.reduce(0, +) : nil
        let ended = queues.reduce(0) { $0 + $1.ended }
        self.ended = ended
        left = total.map { max(0, $0 - ended) }
        outcomes = sum(\.outcomes)
        (deadReasons, retryReasons) = (sum(\.deadReasons), sum(\.retryReasons))
        startedAt = queues.compactMap(\.startedAt).min()
        updatedAt = queues.compactMap(\.updatedAt).max()
        finishedAt = finished ? queues.compactMap(\.finishedAt).max() : nil
        if let startedAt, let end = finishedAt ?? updatedAt, end >= startedAt { durationMs = end - startedAt }
        if let durationMs, durationMs > 0, ended > 0 {
            endedPerSecond = (Double(ended) * 10_000 / Double(durationMs)).rounded() / 10
        }
        let latencies = queues.reduce(into: LatencyCounts()) { $0 += $1.latencies }
        latencyP50Ms = latencies.percentile(0.5).map { Int(bounding: $0) }
        latencyP99Ms = latencies.percentile(0.99).map { Int(bounding: $0) }
        deliveredShare = share(.delivered)
        invalidShare = share(.invalidToken)
    }

    /// The period with the most ended notifications.
    package var peak: CampaignPace.Point? { rates.max { $0.ended < $1.ended } }

    package func count(_ outcome: Outcome) -> Int { outcomes[outcome.rawValue] ?? 0 }

    /// Returns the share of the ended notifications that had an outcome, from 0 to 1, with four decimals.
    package func share(_ outcome: Outcome) -> Double? {
        ended > 0 ? (Double(count(outcome)) * 10_000 / Double(ended)).rounded() / 10_000 : nil
    }

    /// Returns a share such as `2.5%`, or `<0.1%` for a share that rounds to 0.
    package static func percent(_ count: Int, of all: Int) -> String {
        guard all > 0, count > 0 else { return "0%" }
        let tenths = Int(bounding: (Double(count) * 1000 / Double(all)).rounded())
        guard tenths > 0 else { return "<0.1%" }
        return tenths % 10 == 0 ? "\(tenths / 10)%" : "\(tenths / 10).\(tenths % 10)%"
    }

    /// The state in words, such as `finished` or `running, 12,000 left`; all states, if the queues differ.
    package var state: String {
        if partial == true { return "not known: a queue could not be read" }
        let states = CampaignStatus.State.allCases.filter { state in queues.contains { $0.state == state } }
        let words = states.map(\.words).joined(separator: " and ")
        if finished { return words }
        return words + (left.map { ", \(Words.number($0)) left" } ?? ", the total is unknown")
    }

    package var facts: [(name: String, value: String)] {
        var facts = [("State", state)]
        if let total { facts.append(("Notifications", Words.number(total))) }
        facts.append(("Ended", Words.number(ended)))
        if ended > 0 {
            facts.append(("Delivered", Self.percent(count(.delivered), of: ended)))
            facts.append(("Invalid tokens", Self.percent(count(.invalidToken), of: ended)))
        }
        if let startedAt { facts.append(("Started", Moment.text(startedAt))) }
        if let end = finishedAt ?? updatedAt { facts.append((finished ? "Finished" : "Last ended", Moment.text(end))) }
        if let durationMs { facts.append(("Duration", Words.duration(durationMs))) }
        if let endedPerSecond { facts.append(("Ended per second", Words.rate(endedPerSecond))) }
        if let latencyP50Ms, let latencyP99Ms {
            let (half, most) = (Words.duration(Int64(latencyP50Ms)), Words.duration(Int64(latencyP99Ms)))
            facts.append(("Delivered after", "\(half) (p50), \(most) (p99)"))
        }
        if let peak {
            facts.append(
                ("Peak", "\(Words.rate(peak.endedPerSecond)) per second, in \(Words.duration(peak.seconds * 1000))"))
        }
        return facts
    }

    package var page: [String] {
        let width = 18
        var lines = ["campaign \(campaign)"]
        lines += facts.map { $0.name.padded(to: width) + $0.value }
        for outcome in Outcome.allCases where count(outcome) > 0 {
            lines.append(
                "  \(outcome.rawValue.padded(to: width)) \(Words.number(count(outcome))) "
                    + "(\(Self.percent(count(outcome), of: ended)))")
        }
        for (title, reasons) in [("Dead letters", deadReasons), ("Retries", retryReasons)] where !reasons.isEmpty {
            lines.append(title.padded(to: width) + Words.groups(reasons))
        }
        guard queues.count > 1 else { return lines }
        for part in queues {
            lines.append(
                "queue \(part.queue)".padded(to: width) + Words.number(part.ended)
                    + (part.total.map { " of \(Words.number($0))" } ?? "") + ", \(part.state.words)")
        }
        return lines
    }
}

extension CampaignSummary: Shown {
    package static let columns = Columns<Self>(
        "CampaignReport", "A campaign in all of its queues.", commands: ["campaign report"],
        [
            .init("campaign", "Name.", as: .campaign, \.campaign),
            .init(
                "finished", "True if all notifications of all queues have ended, and their total is final.", \.finished),
            .init("total", "Number of all notifications, if recorded in each queue.", as: .count, \.total),
            .init("ended", "Number of notifications that ended.", as: .count, \.ended),
            .init("left", "Number of notifications that have not ended.", as: .count, \.left),
            .init("outcomes", "Notifications that ended, by outcome.", \.outcomes),
            .init("delivered_share", "Delivered share of the ended notifications, from 0 to 1.", \.deliveredShare),
            .init("invalid_share", "Invalid tokens per ended notification, from 0 to 1.", \.invalidShare),
            .init("dead_reasons", "Notifications that became dead letters, by reason.", \.deadReasons),
            .init("retry_reasons", "Number of times that notifications were tried again, by reason.", \.retryReasons),
            .init("started_at", "Time at which the first notification ended or was postponed.", as: .time, \.startedAt),
            .init("updated_at", "Time at which the last notification ended.", as: .time, \.updatedAt),
            .init("finished_at", "Time at which all notifications had ended.", as: .time, \.finishedAt),
            .init("duration_ms", "Time from the first settlement to the last one.", as: .duration, \.durationMs),
            .init("ended_per_second", "Ended notifications per second of `duration_ms`.", as: .rate, \.endedPerSecond),
            .init(
                "latency_p50_ms", "Estimated median of the times from enqueueing to delivery at the first attempt.",
                as: .duration, \.latencyP50Ms),
            .init("latency_p99_ms", "Estimated 99th percentile; see `latency_p50_ms`.", as: .duration, \.latencyP99Ms),
            .init("rates", "Rate over time, from the first period to the last one.", \.rates),
            .init("queues", "Parts in the queues.", \.queues),
            .init("partial", "True if a queue could not be read; then `total` and `left` are unknown.", \.partial),
        ])
}
