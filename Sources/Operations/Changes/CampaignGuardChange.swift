import PrintableText
import PushJob
import PushQueue

/// Sets or removes the guard of a campaign, in all chosen queues.
package struct CampaignGuardChange: Change {
    private let campaign: String
    private let reason: String?
    /// `nil` to remove it.
    private let new: CampaignGuard?

    package var action: AuditEntry.Action { .guardCampaign }

    package init(_ fields: Fields) throws(FieldMistake) {
        campaign = try fields.campaign()
        reason = try fields.reason()
        new = try fields.campaignGuard()
        guard (new != nil) != fields.isSet("off") else {
            throw FieldMistake { "pass either \($0("stop_if")) or \($0("off"))" }
        }
    }

    package func plan(_ desk: Desk, _ progress: @Sendable (Int) -> Void) async throws -> ChangePlan {
        var plan = ChangePlan("campaign \(campaign)")
        let words = new.map { "\($0.text), from \(Words.number($0.minimum)) notifications on" } ?? "off"
        plan.detail = reason.map { "\(words): \($0)" } ?? words
        (plan.isCounted, plan.actsOnNothing) = (false, true)
        plan.parts = desk.queues.map { ChangePart($0.queue) }
        if new != nil {
            let known = try await CampaignStatus.queues(knowing: campaign, of: desk.queues, desk.fleet)
            if !known.isKnown {
                try await desk.checkExistence(ofCampaign: campaign, plan.subject, isInAdvance: true)
            }
        }
        return plan
    }

    package func apply(_ plan: ChangePlan, _ desk: Desk, _ control: ChangeControl) async throws -> ChangeResult {
        var result = ChangeResult([])
        // Each queue compares its own counters, and any queue may get jobs of the campaign later.
        for keys in desk.queues {
            let client = try await desk.fleet.client(for: keys.retry)
            let before = try await CampaignGuard.set(new, of: campaign, client, keys)
            var part = ChangePart(keys.queue, count: before != nil || new != nil ? 1 : 0)
            part.sentence =
                "campaign \(campaign.printable) in queue \(keys.queue) "
                + (new.map {
                    "is paused if \($0.text), from \(Words.number($0.minimum)) notifications on"
                } ?? (before == nil ? "has no guard" : "has no guard any more"))
            part.report = Report(
                queue: keys.queue, campaign: campaign.printable, stopIf: new?.text, stopMin: new?.minimum,
                before: before?.text)
            result.parts.append(part)
        }
        result.hasNoEffect = result.count == 0
        return result
    }

    /// The result in one queue. Its members are those of the JSON.
    private struct Report: Encodable, Sendable {
        var queue: String
        var campaign: String
        var stopIf: String?
        var stopMin: Int?
        /// The rules of the guard before.
        var before: String?
    }
}
