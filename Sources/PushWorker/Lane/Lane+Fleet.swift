import Logging
import NIOCore
import PushQueue
import Redis

/// What all workers know together, as the lane reads it from Redis while it has work: which apps are paused, and how many
/// invalid and throttled tokens there are.
extension Lane {
    /// How old what was read may be.
    private static let fleetStateAge = TimeAmount.seconds(1)

    /// Reads it, if what was read is old. The tokens of the jobs that are accepted from now on are looked up behind it, so that
    /// they are sent by what it says.
    func readFleetStateIfDue() {
        guard eventLoop.now - fleetStateReadAt >= Self.fleetStateAge, let appPauses, phase != .stopped else { return }
        fleetStateReadAt = eventLoop.now
        invalidTokenCount = nil
        invalidTokens?.count { [self] result in
            switch result {
            case .success(let count): invalidTokenCount = count
            case .failure(let error): tellOfFleetState(.redis(error))
            }
        }
        let now = queues.first?.now ?? 0
        throttledTokens?.read(now: now) { [self] result in
            switch result {
            case .success(let tokens):
                for (token, until) in tokens { throttles.learned(token, until: until, now: now) }
                if !throttles.isEmpty { throttles.forget(before: now) }
            case .failure(let error): tellOfFleetState(.redis(error))
            }
        }
        let versions = apps.map(\.breaker.version)
        appPauses.read(apps.map(\.configuration.name)) { [self] result in
            switch result {
            case .success(let pauses):
                fleetStateAccepted()
                for ((app, pause), version) in zip(zip(apps, pauses), versions) {
                    learned(pause, of: app, version: version)
                }
            case .failure(let error): tellOfFleetState(.redis(error))
            }
        }
    }

    /// What could not be read or written is tried again by whatever needs it; a lost connection is told of elsewhere.
    func tellOfFleetState(_ failure: QueueConnection.Failure) {
        guard failure.isAnswer else { return }
        trouble(
            .error, "Redis refuses what the workers have to tell each other: \(failure)", "fleet", at: "\(index)")
    }

    private func fleetStateAccepted() {
        guard let after = troubles.ended("fleet", at: "\(index)") else { return }
        logger.notice("Redis takes what the workers have to tell each other again", metadata: ["after_ms": "\(after)"])
    }
}
