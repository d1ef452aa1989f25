import NIOCore
import PushQueue
import Redis

extension JobCommands {
    package enum Change: Sendable, Equatable {
        /// Drop the jobs. They are kept as cancelled jobs unless they are discarded.
        case cancel(discard: Bool)
        /// Defer the jobs.
        case pause
        case resume
        case uncancel
        /// Limit the notifications per second; `nil` for no limit.
        case limit(perSecond: Int?)

        fileprivate var name: String {
            switch self {
            case .cancel(let discard): discard ? "discard" : "cancel"
            case .pause: "pause"
            case .resume: "resume"
            case .uncancel: "uncancel"
            case .limit: "limit"
            }
        }
    }

    /// - Throws: `RedisError`.
    package static func read(_ client: RedisClient, _ keys: QueueKeys) async throws -> JobCommands {
        do {
            let hash = try await client.call(RedisCommand("HGETALL", keys.jobCommands))
            return JobCommands(hash: hash.root.children) ?? JobCommands()
        } catch RedisError.server(let answer) where answer.prefix == "WRONGTYPE" {
            // Redis' own error does not name the key.
            throw RedisError.server(RedisServerError(text: "WRONGTYPE \(keys.jobCommands) does not hold a hash"))
        }
    }

    /// Writes commands. Lanes apply them with their next claim, within about half a second if they have unsent notifications.
    /// - Parameters:
    ///   - targets: together with the targets of all earlier commands, at most 1,000 campaigns and 1,000 IDs.
    ///   - by: the operator's name, which is only displayed.
    ///   - reason: a text that is only displayed.
    /// - Returns: the version of the commands, and the former command of each target.
    /// - Throws: `RedisError`.
    @discardableResult
    package static func change(
        _ change: Change, of targets: [Target], by: String, reason: String = "", _ client: RedisClient,
        _ keys: QueueKeys
    ) async throws -> (version: String, previous: [Command?]) {
        try await QueueScript.commandJobs.run(client, [keys.jobCommands]) { command in
            command.append(change.name)
            command.append(by)
            command.append(reason)
            if case .limit(let perSecond?) = change { command.append(perSecond) } else { command.append(0) }
            for target in targets { command.append(target.field) }
        } reading: { reply in
            (
                reply.text(),
                targets.map { _ in
                    let previous = reply.bytes()
                    return previous.readableBytes > 0 ? Command(previous) : nil
                }
            )
        }
    }

    /// The state of a change, as far as workers have reported it.
    package struct Confirmation {
        /// Notifications that were in flight when their cancellation arrived.
        package var cancelledInFlight = 0
        /// Lanes that hold jobs and have not reported the change.
        package var unconfirmed = 0
    }

    /// Waits for up to ten seconds until all lanes with jobs have reported this version of the commands, or a later one. Lanes without jobs
    /// read it with their next claim.
    /// - Throws: `RedisError`.
    static func waitForConfirmation(
        of version: String, _ client: RedisClient, _ keys: QueueKeys, isStopped: () -> Bool
    ) async throws -> Confirmation {
        let number = Int(version) ?? 0
        let deadline = ContinuousClock.now + .seconds(10)
        while true {
            var confirmation = Confirmation()
            for worker in try await QueueOverview.leases(client, keys) where worker.leaseLeft >= 0 {
                if let report = worker.report, Int(report.commands) ?? 0 >= number {
                    confirmation.cancelledInFlight += report.commands == version ? report.cancelledInFlight : 0
                } else if worker.claims > 0 {
                    confirmation.unconfirmed += 1
                }
            }
            if confirmation.unconfirmed == 0 || isStopped() || ContinuousClock.now >= deadline { return confirmation }
            try await Task.sleep(for: .milliseconds(50))
        }
    }

    /// Cancels jobs by ID, or ends a cancellation. A cancellation concerns any state, and jobs that are enqueued within seven days.
    /// - Parameters:
    ///   - change: a cancellation, or its end.
    ///   - by: the operator.
    /// - Returns: the number of the IDs that were cancelled before.
    /// - Throws: `RedisError`.
    @discardableResult
    static func change(
        _ change: Change, ofJobs ids: Set<Name>, by: String, _ client: RedisClient, _ keys: QueueKeys
    ) async throws -> Int {
        let before = try await Self.change(change, of: ids.sorted().map { Target.id($0.text) }, by: by, client, keys)
            .previous
        return before.count { $0?.state == .cancelled }
    }
}
