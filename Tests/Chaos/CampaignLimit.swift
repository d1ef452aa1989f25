import TestSupport

/// The limit of the campaign, which an operator sets once for all queues together.
struct CampaignLimit {
    /// Notifications per second, of all queues together.
    let perSecond: Int
    /// The time of Redis before the limit was set, in milliseconds since 1970. Nothing of the campaign is sent before it.
    let setAfter: Int

    /// Sets the limit so that the campaign takes as long as the faults.
    /// - Parameters:
    ///   - total: the number of the campaign's notifications.
    ///   - seconds: the duration of the faults.
    /// - Throws: ``ChildProcess/Failure`` if the command fails.
    init(_ total: Int, within seconds: Int, servers: any QueueServers) async throws {
        perSecond = max(1, total / seconds)
        setAfter = try servers.connect(for: "push:{shared}:audit").milliseconds()
        let command = try ChildProcess(
            BuiltProgram.path("apns-worker"),
            ["campaign", "limit", HotQueue.campaign, "--per-second", "\(perSecond)"],
            environment: ["APNS_WORKER_REDIS_URL": servers.url])
        let ending = try await command.wait()
        guard ending == .exited(0) else { throw command.failure("the limit of the campaign: \(ending)") }
    }

    /// Returns the shortest possible time for some notifications, in milliseconds of Redis' clock. Subtracts a tenth of a second, whose
    /// notifications can be sent at once, and the last second.
    func shortestTime(of notifications: Int, _ plan: Plan) -> Int {
        let setBack = plan.faults.count { $0.action == .redis(.clockBack) } * Fault.clockStep
        return 1000 * notifications / perSecond - 1100 - 1000 * setBack
    }
}

extension RedisTestConnection {
    /// Returns the time of the server, in milliseconds since 1970.
    fileprivate func milliseconds() throws -> Int {
        let time = try run("TIME").elements ?? []
        guard time.count == 2, let seconds = time[0].number, let microseconds = time[1].number else {
            throw ChildProcess.Failure(description: "TIME gave no time: \(time)")
        }
        return seconds * 1000 + microseconds / 1000
    }
}
