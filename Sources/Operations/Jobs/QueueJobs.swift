import NIOCore
import PushJob
import PushQueue
import Redis

/// A queue's jobs, read a page at a time so that a million of them do not block Redis.
///
/// Workers claim jobs and producers add some at the same time. A job that stays in its place is seen; a job that moves
/// between two pages may be seen twice, or missed.
package struct QueueJobs: Sendable {
    /// A key that has jobs.
    package enum Place: Sendable, Equatable {
        case list
        case inbox
        case sorted
        case retry
        case claimed(lane: String)
    }

    /// Some jobs of one place.
    package struct Page: Sendable {
        /// Redis' time in milliseconds since 1970.
        package var now: Int64
        /// The jobs.
        package var jobs: [StoredJob]
        /// The place of the next page; `nil` after the last.
        package var cursor: String?
    }

    /// The maximum number of jobs of a page, and the size in bytes at which a page ends.
    static let (pageSize, pageBytes) = (500, 262_144)

    let client: RedisClient
    package let keys: QueueKeys
    let format: JobFormat
    let limits: QueueLimits

    /// - Parameter client: a client of the server that has the queue.
    package init(_ client: RedisClient, _ keys: QueueKeys, format: JobFormat = .native, limits: QueueLimits = .init()) {
        self.client = client
        self.keys = keys
        // Jobs of other classes are jobs of the list, too.
        self.format = format.withoutClasses
        self.limits = limits
    }

    // MARK: Reading

    /// Reads one page of the list, the inbox, the sorted jobs, which are read in the order in which they are sent, or the
    /// retries.
    /// - Parameters:
    ///   - fromHead: true to begin at the end from which workers claim.
    ///   - latestFirst: true to begin with the retry that is due last.
    ///   - decodes: true to decode the jobs.
    /// - Throws: `RedisError`, or `QueueFailure/unexpectedReply(_:)`.
    func page(
        _ place: Place, after cursor: String?, limit: Int = pageSize, fromHead: Bool = false,
        latestFirst: Bool = false, decodes: Bool
    ) async throws -> Page {
        let (key, head): (String, QueueKeys.Head) =
            switch place {
            case .list: (keys.jobs, keys.head)
            case .inbox: (keys.inbox, .left)
            case .sorted: (keys.sorted, .left)
            case .retry: (keys.retry, .left)
            case .claimed(let lane): (keys.claimed(lane), .left)
            }
        let isSet = place == .retry || place == .sorted
        let isFromLeft = isSet ? place == .sorted || !latestFirst : fromHead == (head == .left)
        return try await read(
            key, kind: isSet ? "retry" : "list", cursor: cursor, limit: limit, end: isFromLeft ? .left : .right
        ) { position, size, body, now in
            let format = decodes ? format : nil
            if place == .sorted { return StoredJob(sorted: body, size: size, format: format) }
            let due = place == .retry ? Int64(bounding: Double(position) ?? 0) : nil
            return StoredJob(body, size: size, due: due, format: format)
        }
    }

    private func read(
        _ key: String, kind: String, cursor: String?, limit: Int, end: QueueKeys.Head = .left, fields: [String] = [],
        _ make: (_ position: String, _ size: Int, _ body: ByteBuffer, _ now: Int64) -> StoredJob
    ) async throws -> Page {
        try await QueueScript.pageJobs.run(client, [key]) { command in
            command.append(kind)
            command.append(cursor ?? "start")
            command.append(limit)
            command.append(Self.pageBytes)
            command.append(end.rawValue)
            for field in fields { command.append(field) }
        } reading: { reply in
            var page = Page(now: Int64(reply.number()), jobs: [], cursor: reply.textIfAny())
            while !reply.isAtEnd { page.jobs.append(make(reply.text(), reply.number(), reply.bytes(), page.now)) }
            return page
        }
    }

    /// Reads all jobs of some states.
    /// - Parameters:
    ///   - inOrder: true to begin with the sorted jobs, for a list of jobs. Otherwise they come after the list, so that none
    ///     is missed that a worker sorts in the meantime.
    ///   - body: gets the jobs of each page that match, and Redis' time; returns false to stop.
    /// - Returns: the number of jobs that were examined.
    /// - Throws: `RedisError`, `QueueFailure/unexpectedReply(_:)`, or an error of `body`.
    @discardableResult
    package func sweep(
        _ filter: JobFilter, decodes: Bool = true, inOrder: Bool = false,
        _ body: (Place, [StoredJob], Int64) async throws -> Bool
    ) async throws -> Int {
        let decodes = decodes || filter.readsJobs
        var looked = 0
        for place in try await places(filter, inOrder: inOrder) {
            if case .claimed(let lane) = place {
                guard try await sweepClaims(of: lane, filter, decodes, &looked, body) else { return looked }
                continue
            }
            var cursor: String?
            repeat {
                let page = try await page(place, after: cursor, decodes: decodes)
                looked += page.jobs.count
                let matching = page.jobs.filter { filter.matches($0, now: page.now) }
                guard try await body(place, matching, page.now) else { return looked }
                cursor = page.cursor
                // The retries are in the order of their time.
                if place == .retry, let last = page.jobs.last?.due, let end = filter.dueBefore, last >= end { break }
            } while cursor != nil
        }
        return looked
    }

    /// Some jobs that match, and the place to continue from.
    package struct Listing: Sendable {
        /// Redis' time in milliseconds since 1970.
        package var now: Int64 = 0
        package var jobs: [StoredJob] = []
        /// The number of jobs that were examined.
        package var looked = 0
        /// The cursor of the next part; `nil` after the last.
        package var cursor: String?
    }

    /// Returns some of the jobs that match. With an `end`, the time does not depend on the length of the queue.
    /// - Parameters:
    ///   - cursor: the cursor of the previous part; `nil` for the first.
    ///   - limit: the maximum number of jobs.
    ///   - end: the time at which the search ends, even if too few jobs were found. At least one page of Redis is read.
    ///   - latestFirst: true to begin with the retry that is due last.
    /// - Throws: `RedisError`, or `QueueFailure/unexpectedReply(_:)`.
    package func list(
        _ filter: JobFilter, after cursor: String? = nil, limit: Int, until end: ContinuousClock.Instant? = nil,
        latestFirst: Bool = false
    ) async throws -> Listing {
        var listing = Listing()
        var places = try await places(filter, inOrder: true)[...]
        // The name of the place, and the cursor within it.
        let parts = (cursor ?? "").split(separator: "@", maxSplits: 1, omittingEmptySubsequences: false)
            .map(String.init)
        var inner = InnerCursor()
        var isOver: Bool { end.map { ContinuousClock.now >= $0 } ?? false }
        if parts.count == 2, let index = places.firstIndex(where: { $0.name == parts[0] }) {
            places = places[index...]
            inner = InnerCursor(parts[1])
        }
        while let place = places.popFirst() {
            repeat {
                var found: [StoredJob] = []
                var next: String?
                if case .claimed(let lane) = place {
                    _ = try await sweepClaims(of: lane, filter, true, &listing.looked) { _, jobs, now in
                        listing.now = now
                        found += jobs
                        return true
                    }
                } else {
                    let missing = max(1, min(limit - listing.jobs.count, Self.pageSize))
                    let wanted = filter.matchesAll ? inner.skipped + missing : Self.pageSize / 2
                    let page = try await page(
                        place, after: inner.position, limit: wanted, latestFirst: latestFirst, decodes: true)
                    listing.now = page.now
                    listing.looked += page.jobs.count
                    found = page.jobs.filter { filter.matches($0, now: page.now) }
                    next = page.cursor
                }
                let rest = limit - listing.jobs.count
                let new = found.dropFirst(inner.skipped)
                listing.jobs += new.prefix(rest)
                if new.count > rest {
                    inner.skipped += rest
                    listing.cursor = "\(place.name)@\(inner.text)"
                    return listing
                }
                inner = InnerCursor(position: next)
                if next != nil, listing.jobs.count >= limit || isOver {
                    listing.cursor = "\(place.name)@\(inner.text)"
                    return listing
                }
            } while inner.position != nil
            if let next = places.first, listing.jobs.count >= limit || isOver {
                listing.cursor = "\(next.name)@"
                return listing
            }
        }
        return listing
    }

    /// A position within a place: a page of Redis, and the number of matching jobs in it that were returned before.
    private struct InnerCursor {
        /// The cursor of the page of Redis; `nil` for the first.
        var position: String?
        var skipped = 0

        init(position: String? = nil) { self.position = position }

        /// Reads `<position>` or `<skipped>+<position>`.
        init(_ text: String) {
            let parts = text.split(separator: "+", maxSplits: 1, omittingEmptySubsequences: false).map(String.init)
            let number = parts.count == 2 && parts[0].utf8.allSatisfy { $0 &- 0x30 < 10 } ? Int(parts[0]) : nil
            skipped = number.map { min($0, QueueJobs.pageSize * 1000) } ?? 0
            let rest = number == nil ? text : parts[1]
            position = rest.isEmpty ? nil : rest
        }

        var text: String { (skipped > 0 ? "\(skipped)+" : "") + (position ?? "") }
    }

    /// Returns the places of the jobs, in the order in which jobs pass through them or, if they are listed, in which waiting
    /// jobs are sent.
    private func places(_ filter: JobFilter, inOrder: Bool) async throws -> [Place] {
        let waiting: [Place] = inOrder ? [.sorted, .list, .inbox] : [.list, .inbox, .sorted]
        var places = filter.includes(.waiting) ? waiting : []
        if filter.includes(.claimed) {
            let lanes = try await client.call(RedisCommand("ZRANGE", keys.workers, "0", "-1")).root.children
            places += lanes.compactMap(\.string).map { .claimed(lane: $0) }
        }
        return places + (StoredJob.State.postponed.contains(where: filter.includes) ? [.retry] : [])
    }

    private func sweepClaims(
        of lane: String, _ filter: JobFilter, _ decodes: Bool, _ looked: inout Int,
        _ body: (Place, [StoredJob], Int64) async throws -> Bool
    ) async throws -> Bool {
        let key = keys.claimed(lane)
        var fields = try await client.call(RedisCommand("HKEYS", key)).root.children.compactMap(\.string)[...]
        while !fields.isEmpty {
            let some = Array(fields.prefix(250))
            let page = try await read(key, kind: "claimed", cursor: nil, limit: some.count, fields: some) {
                _, size, body, _ in StoredJob(body, size: size, lane: lane, format: decodes ? format : nil)
            }
            fields = fields.dropFirst(max(1, page.cursor.flatMap { Int($0) } ?? some.count))
            looked += page.jobs.count
            let matching = page.jobs.filter { filter.matches($0, now: page.now) }
            guard try await body(.claimed(lane: lane), matching, page.now) else { return false }
        }
        return true
    }

    // MARK: Changing

    /// The action on chosen jobs.
    package enum Action: Sendable {
        /// They become dead letters.
        /// - Parameter detail: an explanation for the dead letter.
        case cancel(detail: String)
        /// They are removed.
        case discard
        /// They are removed, because they were already pushed elsewhere.
        case remove
        /// They are moved to another queue of the same server.
        case move(to: QueueKeys)
        /// Their next attempt is due now.
        case run
    }

    /// The result of a change.
    package struct Changed: Sendable, Equatable {
        /// Jobs that were still in place.
        package var changed: Int
        /// Jobs at the head of the list that were processed.
        package var passed: Int
        /// Dead letters that were evicted to stay within the limits.
        package var evicted: Int
    }

    /// The reason of dead letters that were cancelled.
    package static let cancelledReason = "Cancelled"

    /// Changes jobs of one place: the retries, the sorted jobs or the list.
    /// - Parameter passing: the number of jobs at the head of the list to process.
    /// - Throws: `RedisError`, or `QueueFailure/unexpectedReply(_:)`.
    func change(
        _ action: Action, _ jobs: [StoredJob], in place: Place, passing: Int = 0
    ) async throws -> Changed {
        var other: QueueKeys?
        if case .move(let keys) = action { other = keys }
        return try await change(
            action.name, in: place, other: other, passing: passing,
            counter: action.isCancellation ? Outcome.cancelled.rawValue : "",
            expecting: jobs.count * 8
        ) { command in
            for job in jobs {
                command.append(job.stored)
                command.append(job.notifications)
                command.append(text(action, job))
                command.append(job.start)
                command.append(job.envelope.original.count)
                let results = action.isCancellation ? results(of: job) : PackedResults()
                command.append(results.argument)
                command.append(results.count)
                command.append(job.job?.campaignName ?? ByteBuffer())
            }
        }
    }

    /// Commands workers to drop the jobs with some ids for seven days, in whatever state they are, or ends that.
    /// - Parameters:
    ///   - change: a cancellation, or its end.
    ///   - by: the operator.
    /// - Returns: the number of these ids that had been cancelled.
    /// - Throws: `RedisError`.
    @discardableResult
    package func command(_ change: JobCommands.Change, ids: Set<String>, by: String) async throws -> Int {
        let targets = ids.sorted().map(JobCommands.Target.id)
        let before = try await JobCommands.change(change, of: targets, by: by, client, keys).previous
        return before.count { $0?.state == .cancelled }
    }

    /// Puts jobs of the inbox back at the head of the list.
    /// - Returns: their number.
    /// - Throws: `RedisError`, or `QueueFailure/unexpectedReply(_:)`.
    func restoreInbox() async throws -> Int {
        try await change("restore", in: .list, other: nil, passing: 0, counter: "", expecting: 0) { _ in }.passed
    }

    private func change(
        _ action: String, in place: Place, other: QueueKeys?, passing: Int, counter: String, expecting count: Int,
        _ append: (inout RedisCommand) -> Void
    ) async throws -> Changed {
        var names = [
            keys.jobs, keys.inbox, keys.retry, keys.sorted, keys.cancelled, keys.cancelledBytes, keys.statsPrefix,
        ]
        names += [keys.results, keys.campaigns, keys.campaignPrefix, keys.minutesPrefix]
        if let other { names += [other.jobs, other.retry] }
        return try await QueueScript.changeJobs.run(client, names) { command in
            command.append(action)
            command.append(place.name)
            command.append(keys.head.rawValue)
            command.append((other?.head ?? keys.head).rawValue)
            command.append(passing)
            command.append(String(UInt64.random(in: 0...UInt64.max), radix: 36))
            command.append(limits.maximumDeadLetters)
            command.append(limits.maximumDeadLetterAge)
            command.append(limits.maximumDeadLetterBytes)
            command.append(limits.resultsKept)
            command.append(counter)
            command.append(Self.cancelledReason)
            append(&command)
        } reading: { reply in
            Changed(changed: reply.number(), passed: reply.number(), evicted: reply.number())
        }
    }

    private func text(_ action: Action, _ stored: StoredJob) -> ByteBuffer {
        switch action {
        case .cancel(let detail):
            var text = ByteBuffer(string: ",\"attempts\":\(stored.envelope.attempt - 1)")
            let failure = stored.failure
            text.writeImmutableBuffer(
                DeadLetter.members(
                    job: stored.job ?? JobDecoder.identify(stored.body, as: format), detail: detail,
                    status: failure?.status, error: failure?.reason, tokens: stored.envelope.tokens(in: stored.body)))
            return text
        case .run: return stored.madeDue
        case .discard, .remove, .move: return ByteBuffer()
        }
    }

    /// The maximum number of results for one job.
    private static let maximumResults = 1000

    private func results(of stored: StoredJob) -> PackedResults {
        guard limits.results != .off else { return PackedResults() }
        var result = NotificationResult(
            .cancelled, reason: Self.cancelledReason, attempt: max(0, stored.envelope.attempt - 1))
        result.id = stored.id
        result.app = stored.app.map { String(buffer: $0) }
        result.trace = stored.job?.trace
        result.campaign = stored.campaign
        result.labels = stored.job?.labelsText
        var packed = PackedResults()
        for token in stored.tokens.isEmpty ? [nil] : stored.tokens.prefix(Self.maximumResults).map(Optional.some) {
            result.token = token
            packed.append(result)
        }
        return packed
    }
}

extension QueueJobs.Action {
    fileprivate var name: String {
        switch self {
        case .cancel: "bury"
        case .discard, .remove: "remove"
        case .move: "move"
        case .run: "run"
        }
    }

    fileprivate var isCancellation: Bool {
        switch self {
        case .cancel, .discard: true
        case .remove, .move, .run: false
        }
    }
}

extension QueueJobs.Place {
    /// The name in a cursor, and in the script that changes jobs.
    fileprivate var name: String {
        switch self {
        case .list: "list"
        case .inbox: "inbox"
        case .sorted: "sorted"
        case .retry: "retry"
        case .claimed(let lane): "claimed \(lane)"
        }
    }
}
