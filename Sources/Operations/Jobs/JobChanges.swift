import NIOCore
import PushJob
import PushQueue
import Redis

/// Changes all jobs of a queue that match a filter: cancels, moves or runs them.
package struct JobChanges {
    package struct Tally: Sendable, Equatable {
        package var changed = 0
        package var notifications = 0
        /// Jobs that match and are claimed: they can't be changed.
        package var claimed = 0
        /// Jobs that match and are too large to be handled.
        package var tooLarge = 0
        /// Jobs that were pushed to another queue, and were claimed here before they could be removed. Both copies may be sent.
        package var doubled = 0
        /// Dead letters that were evicted to stay within the limits.
        package var evicted = 0
        /// A sentence for each campaign of moved jobs that could not be closed in the other queue.
        package var unclosed: [String] = []
    }

    /// Jobs are counted again after each round, because workers put jobs back in the meantime.
    private static let maximumRounds = 5
    /// The maximum number of jobs that one call changes: a dead letter with its results takes Redis some 30 µs.
    private static let portion = 128

    private let jobs: QueueJobs
    private let writer: JobWriter
    private let action: JobAction
    private let filter: JobFilter
    private let limit: Int
    /// Pushes jobs elsewhere before they are removed.
    private let push: (([StoredJob]) async throws -> Void)?
    /// The target of a move. The moved notifications are added to the totals of their campaigns there.
    private var target: (client: RedisClient, keys: QueueKeys)?
    /// The campaigns of moved jobs. The value is `nil` if the total is unknown, and true if the move has opened the campaign in the other
    /// queue.
    private var campaigns: [Name: Bool?] = [:]
    private var pace = RequeuePace(perSecond: nil)
    package private(set) var tally = Tally()

    /// - Parameters:
    ///   - limit: the maximum number of jobs.
    ///   - push: pushes jobs elsewhere; only with the action ``JobAction/remove``.
    package init(
        _ jobs: QueueJobs, _ action: JobAction, _ filter: JobFilter, limit: Int? = nil,
        push: (([StoredJob]) async throws -> Void)? = nil
    ) {
        self.jobs = jobs
        writer = JobWriter(jobs)
        self.action = action
        var filter = filter
        if case .run = action {
            // Jobs in other states are due already.
            let states = StoredJob.State.postponed
            filter.states = filter.states.isEmpty ? states : filter.states.intersection(states)
        }
        self.filter = filter
        self.limit = limit ?? .max
        self.push = push
    }

    /// Moves jobs to another queue. In a Redis Cluster, jobs are first pushed to the other queue, and then removed.
    /// - Parameter client: a client of the server that has the other queue.
    package static func move(
        _ jobs: QueueJobs, to keys: QueueKeys, _ filter: JobFilter, _ client: RedisClient, isCluster: Bool,
        limit: Int? = nil
    ) -> JobChanges {
        var changes =
            isCluster
            ? JobChanges(jobs, .remove, filter, limit: limit) { try await push($0, to: keys, client) }
            : JobChanges(jobs, .move(to: keys), filter, limit: limit)
        changes.target = (client, keys)
        return changes
    }

    /// Changes jobs until no job matches, or until it is interrupted.
    /// - Parameters:
    ///   - rate: the maximum number of jobs per second; `nil` for no limit.
    ///   - progress: gets the tally after each step.
    /// - Throws: `RedisError`, or `QueueFailure/unexpectedReply(_:)`. Earlier changes are kept.
    package mutating func run(
        perSecond rate: Int? = nil, isInterrupted: () -> Bool = { false }, progress: (Tally) -> Void = { _ in }
    ) async throws {
        pace = RequeuePace(perSecond: rate)
        let rounds: Result<Void, any Error>
        do { rounds = .success(try await runRounds(isInterrupted, progress)) } catch { rounds = .failure(error) }
        await closeCampaigns()
        try rounds.get()
    }

    private mutating func runRounds(_ isInterrupted: () -> Bool, _ progress: (Tally) -> Void) async throws {
        for _ in 0..<Self.maximumRounds where tally.changed < limit && !isInterrupted() {
            let before = tally.changed
            let found = try await count(isInterrupted)
            if isInterrupted() { return }
            (tally.claimed, tally.tooLarge) = (found.claimed, found.tooLarge)
            let waiting = found.list + found.sorted
            guard waiting + found.retry + found.failed > 0 else { return }
            if found.list > 0, !(try await changeList(found.list, isInterrupted, progress)) { return }
            // A worker may have sorted jobs of the list by now.
            if waiting > 0, !(try await changeSet(.sorted, isInterrupted, progress)) { return }
            if found.retry > 0, !(try await changeSet(.retry, isInterrupted, progress)) { return }
            if found.failed > 0, !(try await changeSet(.failed, isInterrupted, progress)) { return }
            guard tally.changed > before else { return }
        }
    }

    /// Waits for the pace, and returns the number of jobs to change next; 0 if it is interrupted.
    private func portion(_ isInterrupted: () -> Bool) async throws -> Int {
        isInterrupted() ? 0 : min(try await pace.wait(isInterrupted), Self.portion, limit - tally.changed)
    }

    /// The numbers of matching jobs by place.
    private struct Found {
        var list = 0, sorted = 0, retry = 0, failed = 0, claimed = 0, tooLarge = 0
    }

    private func count(_ isInterrupted: () -> Bool) async throws -> Found {
        var found = Found()
        try await jobs.sweep(filter, decodes: false) { place, page, now in
            for job in page {
                switch place {
                case .claimed: found.claimed += 1
                case _ where !job.isWhole: found.tooLarge += 1
                case .list, .inbox: found.list += 1
                case .sorted: found.sorted += 1
                case .retry: if isChangeable(job, now) { found.retry += 1 }
                case .failed: if isChangeable(job, now) { found.failed += 1 }
                }
            }
            return !isInterrupted()
        }
        return found
    }

    private func isChangeable(_ job: StoredJob, _ now: Int64) -> Bool {
        guard job.isWhole else { return false }
        if case .run = action { return job.due.map { $0 > now } ?? false }
        return true
    }

    // MARK: The list

    private mutating func changeList(
        _ expected: Int, _ isInterrupted: () -> Bool, _ progress: (Tally) -> Void
    ) async throws -> Bool {
        // Jobs of the inbox can be changed only in the list.
        var inbox = try await length(jobs.keys.inbox)
        while inbox > 0 {
            let restored = try await writer.restoreInbox()
            inbox -= max(restored, 1)
            if restored == 0 { break }
        }
        var (left, pending, passed) = (expected, try await length(jobs.keys.jobs), 0)
        var proceeds = true
        let result: Result<Void, any Error>
        do {
            while left > 0, pending > 0, tally.changed < limit {
                let most = try await portion(isInterrupted)
                proceeds = most > 0
                guard proceeds else { break }
                let page = try await jobs.page(.list, after: nil, fromHead: true, decodes: true)
                guard !page.jobs.isEmpty else { break }
                var (chosen, end) = ([StoredJob](), page.jobs.count)
                for (index, job) in page.jobs.enumerated() where filter.matches(job, now: page.now) && job.isWhole {
                    chosen.append(job)
                    if chosen.count == min(most, left) {
                        end = index + 1
                        break
                    }
                }
                let changed = try await change(chosen, in: .list, passing: end)
                guard changed.passed > 0 else { break }
                left -= chosen.count
                pending -= changed.passed
                passed += changed.passed - changed.changed
                progress(tally)
            }
            result = .success(())
        } catch {
            result = .failure(error)
        }
        while passed > 0 {
            let restored = try await writer.restoreInbox()
            if restored == 0 { break }
            passed -= restored
        }
        try result.get()
        return proceeds
    }

    private func length(_ list: String) async throws -> Int {
        try await jobs.client.call(RedisCommand("LLEN", list)).root.number ?? 0
    }

    private mutating func change(
        _ chosen: [StoredJob], in place: QueueJobs.Place, passing: Int = 0
    ) async throws -> JobWriter.Changed {
        try await openCampaigns(of: chosen)
        if !chosen.isEmpty { try await push?(chosen) }
        let changed = try await writer.change(action, chosen, in: place, passing: passing)
        try await addTotals(of: chosen.prefix(changed.changed))
        tally.changed += changed.changed
        pace.moved(changed.changed, at: .now())
        tally.evicted += changed.evicted
        if push != nil { tally.doubled += chosen.count - changed.changed }
        // An estimate: some of the chosen jobs may have left their place, and it is unknown which jobs. This is rare.
        tally.notifications += chosen.prefix(changed.changed).reduce(0) { $0 + $1.notifications }
        return changed
    }

    // MARK: Campaigns of moved jobs

    /// Opens the campaigns in the other queue, so that the first moved jobs do not finish them.
    private mutating func openCampaigns(of chosen: [StoredJob]) async throws {
        guard let target else { return }
        for name in Set(chosen.compactMap { $0.campaign.map { Name($0) } }) where campaigns[name] == nil {
            let total = try await jobs.client.call(RedisCommand("HGET", jobs.keys.campaign(name.text), "total")).root
                .string
            guard total != nil else {
                campaigns[name] = .some(nil)
                continue
            }
            let key = target.keys.campaign(name.text)
            let isOpen = try await target.client.call(RedisCommand("HEXISTS", key, "open")).root.number == 1
            if !isOpen { try await CampaignCounts.open(name.text, target.client, target.keys) }
            campaigns[name] = .some(!isOpen)
        }
    }

    private func addTotals(of moved: some Sequence<StoredJob>) async throws {
        guard let target else { return }
        var totals: [Name: Int] = [:]
        for job in moved {
            guard let name = job.campaign.map({ Name($0) }), case .some(.some) = campaigns[name] else {
                continue
            }
            totals[name, default: 0] += job.notifications
        }
        for (name, total) in totals {
            try await CampaignCounts.addTotal(total, of: name.text, target.client, target.keys)
        }
    }

    private mutating func closeCampaigns() async {
        guard let target else { return }
        let opened = campaigns.filter { $0.value == true }.keys
        campaigns = [:]
        for name in opened {
            do {
                try await CampaignCounts.close(name.text, target.client, target.keys)
            } catch {
                tally.unclosed.append(
                    "campaign \(name) stays open in queue \(target.keys.queue), so its end is not recorded: \(error)")
            }
        }
    }

    // MARK: Sets

    private mutating func changeSet(
        _ place: QueueJobs.Place, _ isInterrupted: () -> Bool, _ progress: (Tally) -> Void
    ) async throws -> Bool {
        var cursor: String?
        repeat {
            let page = try await jobs.page(place, after: cursor, decodes: true)
            var chosen = page.jobs.filter { filter.matches($0, now: page.now) && isChangeable($0, page.now) }[...]
            while !chosen.isEmpty, tally.changed < limit {
                let most = try await portion(isInterrupted)
                guard most > 0 else { return false }
                _ = try await change(Array(chosen.prefix(most)), in: place)
                chosen = chosen.dropFirst(most)
                progress(tally)
            }
            cursor = page.cursor
        } while cursor != nil && tally.changed < limit
        return true
    }
}

extension JobChanges {
    /// Pushes jobs to another queue: postponed jobs to the same set, waiting jobs to the end of the other queue's list.
    /// - Parameters:
    ///   - keys: the keys of that queue.
    ///   - client: a client of its server.
    /// - Throws: `RedisError`.
    package static func push(_ stored: [StoredJob], to keys: QueueKeys, _ client: RedisClient) async throws {
        var list = RedisCommand(keys.pushCommand, expecting: stored.count + 1, bytes: 1 << 20)
        var later = RedisCommand("ZADD", expecting: 2 * stored.count + 1, bytes: 1 << 20)
        var failed = later
        list.append(keys.jobs)
        later.append(keys.retry)
        failed.append(keys.failed)
        for job in stored {
            guard let due = job.due else {
                list.append(job.body)
                continue
            }
            if job.state == .retrying {
                failed.append(Int(due))
                failed.append(job.body)
            } else {
                later.append(Int(due))
                later.append(job.body)
            }
        }
        for command in [list, later, failed] where command.count > 2 { _ = try await client.call(command) }
    }
}
