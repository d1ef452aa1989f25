import Logging
import NIOCore
import PushJob

/// Logs likely mistakes of producers in jobs that are sent.
///
/// Only some jobs are examined, because an examination takes longer than sending, and a producer repeats its mistakes.
final class HintLog {
    /// The interval between examinations.
    private static let interval = TimeAmount.milliseconds(10)
    /// The maximum number of entries in ``suggestions``, because a producer may invent names.
    private static let maximumSets = 1000

    private let lane: LaneContext
    private var nextExamination = NIODeadline.distantPast
    /// The hints about the names of members, by ``Job/otherNames``.
    private var suggestions: [UInt64: [Hint]] = [:]

    init(_ lane: LaneContext) { self.lane = lane }

    func isLookingClosely() -> Bool {
        guard lane.now >= nextExamination else { return false }
        nextExamination = lane.now + Self.interval
        return true
    }

    /// Returns hints about unknown members with names like those of a job's members.
    func suggestions(for job: Job, _ queue: QueueContext) -> [Hint] {
        if let known = suggestions[job.otherNames] { return known }
        guard isLookingClosely() else { return [] }
        if suggestions.count >= Self.maximumSets { suggestions.removeAll() }
        let found = JobHints.unknownMembers(job.body, queue.format)
        suggestions[job.otherNames] = found
        return found
    }

    /// Logs a hint: once per rule, member and app, and then at most once per minute.
    func write(_ hint: Hint, _ app: RoutedApp, _ job: Job) {
        let name = app.configuration.name
        let (level, event, message): (Logger.Level, String, String) =
            switch hint.rule {
            case .unknownPushType: (.notice, "unknown_push_type", "sent an unknown push type under the job's topic")
            case _ where hint.isOfPayload:
                (.warning, "payload_hint", "sent a notification that violates a requirement of Apple: \(hint.detail)")
            default: (.warning, "job_hint", "sent a job with a probable mistake: \(hint.detail)")
            }
        lane.logThrottled(
            level, event, message, kind: "\(hint.rule.rawValue) \(name) \(hint.subject)",
            metadata: ["app": "\(name)", "rule": "\(hint.rule.rawValue)"],
            example: job.id.map { ["job": "\(String(buffer: job.text($0)))"] } ?? [:])
    }
}
