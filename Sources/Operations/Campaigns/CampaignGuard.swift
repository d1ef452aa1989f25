import FoundationEssentials
import NIOCore
import PrintableText
import PushQueue
import Redis

/// The guard of a campaign: limits for shares of its notifications. When workers settle jobs, they compute the shares from the queue's
/// counters, and pause the campaign in the queue if a share exceeds its limit.
package struct CampaignGuard: Sendable, Equatable {
    package struct Rule: Sendable, Equatable {
        /// An outcome or `retried`; `dead` and `retried` can have a reason, as in `dead:BadPayload`.
        package var counter: String
        /// The maximum share in percent of the ended notifications; for `retried`, of the ended notifications and the retries together.
        package var percent: Double

        /// The rule as operators write it, such as `dead>1%`.
        package var text: String { "\(counter)>\(CampaignGuard.text(percent))%" }
    }

    /// The campaign is paused if one rule is broken.
    package var rules: [Rule]
    /// The campaign is not paused before this number of its notifications have ended.
    package var minimum: Int
    /// The time when the guard last paused the campaign, in milliseconds since 1970.
    package var stoppedAt: Int64?
    /// The share that exceeded its limit when the guard last paused the campaign, printable.
    package var reason: String?

    /// The counters when the guard began to count: only their growth since then matters. `nil` while the guard has paused the campaign.
    package private(set) var base: [String: Int]? = [:]

    /// Makes a guard that has not paused a campaign.
    package init(_ rules: [Rule], minimum: Int) { (self.rules, self.minimum) = (rules, minimum) }

    /// The rules as operators write them, such as `invalid_token>5%,dead>1%`.
    package var text: String { rules.map(\.text).joined(separator: ",").printable }

    fileprivate static func text(_ percent: Double) -> String {
        percent == percent.rounded() && percent.magnitude < 1e6 ? "\(Int(percent))" : "\(percent)"
    }

    /// The name of the operator in pauses by guards. The scripts use the same name.
    package static let person = "guard"

    // MARK: Rules of operators

    package static let minimumByDefault = 1000
    private static let maximumRules = 10
    /// The counters that rules can name: outcomes that show a fault of the campaign, and retries.
    private static let counters: [String] =
        [Outcome.invalidToken, .dead, .expired, .dropped, .suppressed].map(\.rawValue) + [Postponement.retried.rawValue]
    private static let withReasons = [Outcome.dead.rawValue, Postponement.retried.rawValue]

    /// Returns the first unknown reason in the rules, such as a misspelled one; `nil` if workers know all reasons.
    package static func unknownReason(in rules: [Rule], known: Set<String>) -> String? {
        rules.lazy.compactMap { $0.counter.split(separator: ":").dropFirst().first.map(String.init) }
            .first { !known.contains($0) }
    }

    /// Parses rules such as `invalid_token>5%,dead>1%`.
    /// - Returns: `nil` for a text of another form.
    package static func rules(_ text: String) -> [Rule]? {
        var rules: [Rule] = []
        for part in text.split(separator: ",", omittingEmptySubsequences: false) {
            let sides = part.split(separator: ">", omittingEmptySubsequences: false).map(\.trimmed)
            guard sides.count == 2, isCounter(sides[0]), sides[1].hasSuffix("%"),
                let percent = Double(sides[1].dropLast()),
                (0..<100).contains(percent), !rules.contains(where: { $0.counter == sides[0] })
            else { return nil }
            rules.append(Rule(counter: sides[0], percent: percent))
        }
        return (1...maximumRules).contains(rules.count) ? rules : nil
    }

    /// The form of rules, for messages.
    package static let form =
        "rules such as invalid_token>5%,dead>1%,retried>20%, of \(counters.joined(separator: ", ")), dead:REASON and "
        + "retried:REASON, each below 100%"

    private static func isCounter(_ name: String) -> Bool {
        if counters.contains(name) { return true }
        let parts = name.split(separator: ":", omittingEmptySubsequences: false)
        return parts.count == 2 && withReasons.contains(String(parts[0])) && (1...100).contains(parts[1].utf8.count)
            && parts[1].utf8.allSatisfy {
                (0x30...0x39).contains($0) || (0x41...0x5A).contains($0) || (0x61...0x7A).contains($0)
            }
    }

    // MARK: Redis

    private struct Form: Codable {
        enum Part: Codable {
            case counter(String)
            case percent(Double)

            init(from decoder: any Decoder) throws {
                let value = try decoder.singleValueContainer()
                do { self = .counter(try value.decode(String.self)) } catch {
                    self = .percent(try value.decode(Double.self))
                }
            }

            func encode(to encoder: any Encoder) throws {
                var value = encoder.singleValueContainer()
                switch self {
                case .counter(let name): try value.encode(name)
                case .percent(let percent): try value.encode(percent)
                }
            }
        }

        var rules: [[Part]]
        var min: Double
        var stopped_at: Double?
        var reason: String?
        var base: [String: Double]?
    }

    /// Reads the JSON of a guard, which is a field of the campaign; `nil` if it is not a guard.
    package init?(_ json: String) {
        guard let form = try? JSONDecoder().decode(Form.self, from: Data(json.utf8)) else { return nil }
        rules = form.rules.compactMap { parts in
            guard parts.count == 2, case .counter(let counter) = parts[0], case .percent(let percent) = parts[1] else {
                return nil
            }
            return Rule(counter: counter, percent: percent)
        }
        minimum = Int(bounding: form.min)
        stoppedAt = form.stopped_at.flatMap { Int64(within: $0) }
        reason = form.reason.map { String($0.prefix(200)).printable }
        base = form.base?.mapValues { Int(bounding: $0) }
    }

    /// A rule, and how near a campaign is to its limit.
    package struct Level: Sendable, Equatable {
        package var counter: String
        package var limitPercent: Double
        /// The share now; 0 before the first notification, and while the guard has paused the campaign.
        package var percent: Double
        package var of: Int

        /// The part of the limit that is used up, from 0 to 1.
        package var part: Double {
            limitPercent > 0 ? max(0, min(1, percent / limitPercent)) : percent > 0 ? 1 : 0
        }
    }

    /// Compares counters with the limits, as the scripts do.
    package func levels(_ counters: [String: Int], ended: Int) -> [Level] {
        func grown(_ name: String) -> Double {
            guard let base else { return 0 }
            return max(0, Double(name == "ended" ? ended : counters[name] ?? 0) - Double(base[name] ?? 0))
        }
        return rules.map { rule in
            let retries =
                rule.counter.hasPrefix(Postponement.retried.rawValue)
                ? grown(Postponement.retried.rawValue) : 0
            // Suppressed notifications were not sent, so the other shares do not count them.
            let suppressed = rule.counter == Outcome.suppressed.rawValue ? 0 : grown(Outcome.suppressed.rawValue)
            let all = max(0, grown("ended") + retries - suppressed)
            return Level(
                counter: rule.counter.printable, limitPercent: rule.percent,
                percent: all > 0 ? (grown(rule.counter) * 1000 / all).rounded() / 10 : 0, of: Int(bounding: all))
        }
    }

    /// The JSON of a guard that has not counted yet, for a field of the campaign.
    var json: String {
        get throws {
            let form = Form(rules: rules.map { [.counter($0.counter), .percent($0.percent)] }, min: Double(minimum))
            return String(decoding: try JSONEncoder().encode(form), as: UTF8.self)
        }
    }

    /// Sets or removes the guard of a campaign in a queue. The guard counts from now on.
    /// - Returns: the former guard, and true if the queue knew the campaign.
    /// - Throws: `RedisError`.
    @discardableResult
    package static func set(
        _ new: CampaignGuard?, of campaign: String, _ client: RedisClient, _ keys: QueueKeys
    ) async throws -> (before: CampaignGuard?, wasKnown: Bool) {
        let json = try new?.json ?? ""
        return try await QueueScript.guardCampaign.run(client, [keys.campaign(campaign)]) { command in
            command.append(json)
        } reading: {
            (CampaignGuard($0.text()), $0.number() == 1)
        }
    }
}

extension CampaignGuard.Level: Shown {
    package static let columns = Columns<Self>(
        "GuardLevel", "A rule of a campaign's guard.",
        [
            .init("counter", "Counter, such as `invalid_token`.", \.counter),
            .init("limit_percent", "Share above which the campaign is paused.", \.limitPercent),
            .init("percent", "Share now, in percent.", \.percent),
            .init("of", "Number of notifications from which the share is computed.", as: .count, \.of),
        ])
}

extension CampaignGuard {
    /// Reads a guard from fields; `nil` if they contain no rules.
    /// - Parameter reasons: the reasons that workers know.
    package init?(_ fields: Fields, reasons: Set<String>) throws(FieldMistake) {
        let minimum = try fields.number("min", 1...1_000_000_000)
        guard let text = fields.word("stop_if") else { return nil }
        guard let rules = Self.rules(text) else {
            throw FieldMistake { "\($0("stop_if")) must be \(Self.form)" }
        }
        if let reason = Self.unknownReason(in: rules, known: reasons) {
            let meant = reason.nearest(of: reasons.sorted()).map { "; did you mean \($0)?" } ?? ""
            throw FieldMistake { "\($0("stop_if")) has an unknown reason, \(reason)\(meant)" }
        }
        self.init(rules, minimum: minimum ?? Self.minimumByDefault)
    }
}
