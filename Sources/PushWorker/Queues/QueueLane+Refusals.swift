import Logging
import NIOCore
import PushQueue

/// What Redis, though it can be reached, will not do: it is read-only, busy, out of memory, or something is wrong with a key.
extension QueueLane {
    enum Request: String, CaseIterable {
        case claims
        case reservations
        case settlements
        case waits = "waits for jobs"
    }

    /// How long to leave Redis alone when it has refused something.
    static var refusalPause: TimeAmount { .milliseconds(.random(in: 500...1500)) }

    func refused(_ request: Request, _ failure: QueueConnection.Failure) {
        refusals[request] = "\(failure)"
        let form = if case .redis(.server(let error)) = failure { error.prefix } else { "" }
        lane.trouble(
            .error, "Redis refuses \(request.rawValue): \(failure)", "refused:\(keys.queue)",
            at: "\(lane.index):\(request)", form: form, logger)
    }

    /// To be called for each answer; it is cheap where nothing was refused.
    func accepted(_ request: Request) {
        guard !refusals.isEmpty, refusals.removeValue(forKey: request) != nil,
            let after = lane.troubles.ended("refused:\(keys.queue)", at: "\(lane.index):\(request)")
        else { return }
        logger.notice("Redis refuses nothing any more", metadata: ["after_ms": "\(after)"])
    }

    /// What keeps the lane from working on the queue.
    var problem: String? {
        if !client.isReady {
            let reason = connectionError.map { ": \($0.headline)" } ?? ""
            return "Redis cannot be reached for the queue \(keys.queue)\(reason)"
        }
        if window.isOverdue(now: eventLoop.now) { return "Redis does not answer for the queue \(keys.queue)" }
        // A wait that is refused only makes the lane look for jobs less often.
        for request in [Request.claims, .reservations, .settlements] {
            guard let refusal = refusals[request] else { continue }
            return "Redis refuses \(request.rawValue) of the queue \(keys.queue): \(refusal)"
        }
        return window.hasJoined ? nil : "there is no lease for the queue \(keys.queue) yet"
    }
}
