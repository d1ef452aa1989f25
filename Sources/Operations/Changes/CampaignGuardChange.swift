import PrintableText
import PushJob
import PushQueue

/// Sets or removes the guard of a campaign, in all chosen queues.
package struct CampaignGuardChange: Change {
    private let campaign: String
    private let reason: String?
    /// The new guard; `nil` to remove the guard.
    private let new: CampaignGuard?

    package var action: AuditEntry.Action { .guardCampaign }
    package var campaigns: [String] { [campaign] }

    package static let fields = [
        Field("campaign", isRequired: true), Field("stop_if"), Field("min", .number), Field("off", .flag),
        Field("reason"),
    ]

    /// - Parameter reasons: the reasons that workers know.
    package init(_ fields: Fields, reasons: Set<String>) throws(FieldMistake) {
        try fields.check(Self.fields)
        campaign = try fields.campaign()
        reason = try fields.reason()
        new = try CampaignGuard(fields, reasons: reasons)
        guard (new != nil) != (try fields.isSet("off")) else {
            throw FieldMistake { "pass either \($0("stop_if")) or \($0("off"))" }
        }
    }

    package func plan(_ desk: Desk, _ progress: @Sendable (Int) -> Void) async throws -> ChangePlan {
        var plan = ChangePlan("campaign \(campaign)")
        let words = new.map { "\($0.text), from \(Words.number($0.minimum)) notifications on" } ?? "off"
        plan.detail = reason.map { "\(words): \($0)" } ?? words
        (plan.isCounted, plan.actsOnNothing) = (false, true)
        plan.parts = desk.queues.map { ChangePart($0.queue) }
        return plan
    }

    package func apply(_ plan: ChangePlan, _ desk: Desk, _ control: ChangeControl) async throws -> ChangeResult {
        // The guard is set in every queue: each queue compares its own counters, and may get jobs of the campaign later.
        let changes = try await desk.inEachQueue { keys in
            let client = try await desk.fleet.client(for: keys.campaign(campaign))
            return try await CampaignGuard.set(new, of: campaign, client, keys)
        }
        var result = ChangeResult([])
        var isKnown = desk.isForced || new == nil
        for (keys, changed) in changes {
            switch changed {
            case .success((let before, let wasKnown)):
                var part = ChangePart(keys.queue, count: before != nil || new != nil ? 1 : 0)
                isKnown = isKnown || wasKnown
                part.sentence =
                    "campaign \(campaign.shown) in queue \(keys.queue) "
                    + (new.map {
                        "is paused if \($0.text), from \(Words.number($0.minimum)) notifications on"
                    } ?? (before == nil ? "has no guard" : "has no guard any more"))
                part.report = Report(
                    queue: keys.queue, campaign: campaign, stopIf: new?.text, stopMin: new?.minimum,
                    before: before?.text)
                result.parts.append(part)
            case .failure(let error): result.parts.append(.unwritten(keys, keys.campaign(campaign), error))
            }
        }
        result.hasNoEffect = result.count == 0
        if let missing = desk.missingQueues {
            var part = ChangePart()
            part.error = missing
            result.parts.append(part)
        }
        if !isKnown { result.doubt = try await desk.doubt(aboutCampaign: campaign, isStopped: control.isStopped) }
        return result
    }

    /// The result in one queue, as it is in the JSON.
    private struct Report: Encodable, Sendable {
        var queue: String
        var campaign: String
        var stopIf: String?
        var stopMin: Int?
        /// The rules of the guard before.
        var before: String?
    }
}
