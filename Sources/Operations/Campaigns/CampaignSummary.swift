import PrintableText
import PushQueue
import Redis

/// A campaign in all of its queues together, for a report. Its members are those of the JSON.
package struct CampaignSummary: Encodable, Sendable {
    package var campaign: String
    /// True if all notifications of all queues have ended. A queue whose total is unknown or may grow has not finished.
    package var finished: Bool
    /// The total number of its notifications, if the total of each queue is known.
    package var total: Int?
    package var ended: Int
    package var left: Int?
    /// Notifications that ended, by outcome.
    package var outcomes: [String: Int]
    /// The parts of all notifications that ended, from 0 to 1.
    package var deliveredShare: Double?
    package var invalidShare: Double?
    /// Notifications that became dead letters, by reason.
    package var deadReasons: [String: Int]
    /// The number of times that notifications were tried again, by reason.
    package var retryReasons: [String: Int]
    package var startedAt: Int64?
    package var updatedAt: Int64?
    package var finishedAt: Int64?
    /// The time from the first settlement to the last one, in milliseconds.
    package var durationMs: Int64?
    /// Notifications that ended per second, in that time.
    package var endedPerSecond: Double?
    /// The times from enqueueing to delivery that 50 and 99 percent of the notifications needed at most, estimated, in
    /// milliseconds; of those that were delivered at the first attempt.
    package var latencyP50Ms: Int?
    package var latencyP99Ms: Int?
    /// The rate over time, from the first period to the last one.
    package var rates: [CampaignPace.Point]
    /// The parts in the queues.
    package var queues: [CampaignStatus]
    /// True if a queue could not be read. Then it is not known how many notifications there are, and how many are left.
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

    /// The period in which most notifications ended.
    package var peak: CampaignPace.Point? { rates.max { $0.ended < $1.ended } }

    package func count(_ outcome: Outcome) -> Int { outcomes[outcome.rawValue] ?? 0 }

    /// Returns the part of the notifications that ended in this way, from 0 to 1, with four decimals.
    package func share(_ outcome: Outcome) -> Double? {
        ended > 0 ? (Double(count(outcome)) * 10_000 / Double(ended)).rounded() / 10_000 : nil
    }

    /// Returns a share such as `2.5%`, or `<0.1%` for one that rounds to nothing.
    package static func percent(_ count: Int, of all: Int) -> String {
        guard all > 0, count > 0 else { return "0%" }
        let tenths = Int(bounding: (Double(count) * 1000 / Double(all)).rounded())
        guard tenths > 0 else { return "<0.1%" }
        return tenths % 10 == 0 ? "\(tenths / 10)%" : "\(tenths / 10).\(tenths % 10)%"
    }

    /// The state in words, such as `finished` or `12,000 left`.
    package var state: String {
        if finished { return "finished" }
        if partial == true { return "not known: a queue could not be read" }
        return left.map { "\(Words.number($0)) left" } ?? "the total is unknown"
    }

    /// The facts of the report, each with its name.
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

    /// Returns the report as lines of text.
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
                    + (part.total.map { " of \(Words.number($0))" } ?? "") + ", \(part.state)")
        }
        return lines
    }
}
