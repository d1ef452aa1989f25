import NIOCore
import PrintableText
import PushQueue
import Redis

/// The jobs of a list of tokens.
package protocol CampaignJobs: Sendable {
    /// The digest of the tokens in their order.
    var listDigest: String { get }
    /// The digest of everything that the jobs are made of except the tokens.
    var jobDigest: String { get }
    var count: Int { get }
    /// The number of jobs at the beginning that are the canary; `nil` without a canary. The other jobs wait for the canary's outcomes.
    var canary: Int? { get }
    func notifications(ofFirst jobs: Int) -> Int
    /// The numbers of repeated tokens, and of lines that are not tokens. There are no jobs for them.
    var repeated: Int { get }
    var refused: Int { get }
    /// True if the jobs are sent at a later time. No job ends before that time.
    var isScheduled: Bool { get }
    /// The key in the jobs' member `replaces`, and the campaign as its newest value; `nil` without `replaces`.
    var newest: NewestJob? { get }

    /// Returns the next jobs of the list; none at its end.
    /// - Parameters:
    ///   - first: the number of jobs before the returned ones. Usually it is the end of the last call.
    ///   - count: the maximum number of jobs.
    ///   - bytes: the size after which no further job is added.
    func jobs(after first: Int, atMost count: Int, bytes: Int) throws -> [ByteBuffer]
}

/// A campaign that is sent to a list.
package struct ListedCampaign: Sendable {
    let name: String
    let jobs: any CampaignJobs
    let ahead: Int
    let `guard`: CampaignGuard?
    let wait: Int

    /// - Parameters:
    ///   - ahead: the maximum number of jobs that wait in the queue. Unless the jobs are scheduled, it also limits the notifications
    ///     without an outcome: to those of this number of jobs.
    ///   - guard: the guard of the campaign. A canary requires one, and as many tokens as the guard's minimum.
    ///   - wait: the time to wait for the canary's outcomes after its last push, in milliseconds. After this time, the other jobs still
    ///     wait until the guard has enough outcomes.
    package init(_ name: String, _ jobs: any CampaignJobs, ahead: Int, guard: CampaignGuard? = nil, wait: Int = 0) {
        (self.name, self.jobs, self.ahead, self.guard, self.wait) = (name, jobs, ahead, `guard`, wait)
    }

    /// The number of jobs of the canary; 0 without one.
    var canaryJobs: Int { jobs.canary ?? 0 }
    /// The number of notifications of the canary.
    var canaryTokens: Int { jobs.notifications(ofFirst: canaryJobs) }
}

/// The position in a list of tokens, kept in Redis: the number of jobs that were pushed.
package struct CampaignCursor: Sendable {
    /// The state of the list; see `send-jobs.lua`.
    package enum State: String, Sendable {
        case ready, pushed, moved, full, canary, stopped, cancelled, list, job, lost
    }

    /// The reply to ``push(_:after:)`` or ``ask(after:count:)``.
    package struct Reply: Sendable {
        package var state: State
        /// The number of jobs that were pushed.
        package var next: Int
        package var waiting: Int
        /// The number of notifications that have not ended: of the campaign or, in the state `canary`, of the canary.
        package var unended: Int
        /// The rest of the wait for the canary, in milliseconds.
        package var leftMs = 0
        /// The number of the canary's notifications that must end, however long that takes, because the guard needs them.
        package var needed = 0
        /// The reason why the guard has paused the campaign, printable.
        package var reason = ""
        /// The notifications that have ended since the campaign's first job was pushed, by outcome. Empty without a canary.
        package var outcomes: [Outcome: Int] = [:]
    }

    private let list: ListedCampaign
    private let by: String
    private let client: RedisClient
    let keys: QueueKeys

    /// - Parameter by: the operator.
    package init(_ list: ListedCampaign, by: String, _ client: RedisClient, _ keys: QueueKeys) {
        (self.list, self.by, self.client, self.keys) = (list, by, client, keys)
    }

    /// Asks if jobs can be pushed, and pushes none.
    /// - Throws: `RedisError`, or `QueueFailure`.
    package func ask(after first: Int, count: Int) async throws -> Reply {
        try await run(after: first, count: count, [])
    }

    /// Pushes jobs if they are the next ones of the list. A call can be repeated if its result is unknown.
    /// - Throws: `RedisError`, or `QueueFailure`.
    package func push(_ bodies: [ByteBuffer], after first: Int) async throws -> Reply {
        try await run(after: first, count: bodies.count, bodies)
    }

    /// The number of notifications of the largest job.
    private var largest: Int {
        let rest = list.jobs.notifications(ofFirst: list.canaryJobs + 1) - list.canaryTokens
        return max(list.jobs.notifications(ofFirst: 1), rest)
    }

    private func run(after first: Int, count: Int, _ bodies: [ByteBuffer]) async throws -> Reply {
        let (json, jobs) = (try list.guard?.json ?? "", list.jobs)
        return try await QueueScript.sendJobs.run(
            client,
            [
                keys.campaignList(list.name), keys.jobs, keys.campaign(list.name), keys.campaigns, keys.jobCommands,
                keys.sorted,
            ], then: jobs.newest.map { [keys.newest($0.key)] } ?? []
        ) { command in
            command.append(list.name)
            command.append(jobs.listDigest)
            command.append(jobs.jobDigest)
            command.append(jobs.count)
            command.append(jobs.notifications(ofFirst: jobs.count))
            command.append(first)
            command.append(count)
            command.append(list.ahead)
            command.append(jobs.isScheduled ? 0 : jobs.notifications(ofFirst: first + count))
            command.append(largest * list.ahead)
            command.append(keys.pushCommand)
            command.append(by)
            command.append(json)
            command.append(list.canaryJobs)
            command.append(list.canaryTokens)
            command.append(list.wait)
            command.append(list.guard?.minimum ?? 0)
            command.append(Int(jobs.newest?.life ?? 0))
            for body in bodies { command.append(body) }
        } reading: { reply in
            let name = reply.text()
            let state = State(rawValue: name)
            if state == nil { reply.refuse() }
            var found = Reply(
                state: state ?? .lost, next: reply.number(), waiting: reply.number(), unended: reply.number(),
                leftMs: reply.number(), needed: reply.number(), reason: String(reply.text().prefix(200)).printable)
            for outcome in Outcome.allCases where !reply.isAtEnd { found.outcomes[outcome] = reply.number() }
            return found
        }
    }
}
