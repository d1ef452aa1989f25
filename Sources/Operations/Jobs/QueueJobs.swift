import NIOCore
import PushJob
import PushQueue
import Redis

/// A queue's jobs, read a page at a time so that a million of them do not block Redis.
///
/// Workers claim jobs and producers add jobs at the same time. A job that stays in its place is seen; a job that moves between two pages
/// may be seen twice, or missed.
package struct QueueJobs: Sendable {
    /// A key that has jobs.
    package enum Place: Sendable, Equatable {
        case list
        case inbox
        case sorted
        case retry
        case failed
        case claimed(lane: String)

        /// True for a set of jobs that wait until they are due.
        var isPostponed: Bool { self == .retry || self == .failed }

        /// The name in a cursor, and in the script that changes jobs.
        var name: String {
            switch self {
            case .list: "list"
            case .inbox: "inbox"
            case .sorted: "sorted"
            case .retry: "retry"
            case .failed: "failed"
            case .claimed(let lane): "claimed \(lane)"
            }
        }
    }

    package struct Page: Sendable {
        /// Redis' time in milliseconds since 1970.
        package var now: Int64
        package var jobs: [StoredJob]
        /// The place of the next page; `nil` after the last.
        package var cursor: String?
    }

    /// The maximum number of jobs of a page, and the size in bytes that ends a page.
    static let (pageSize, pageBytes) = (500, 262_144)

    let client: RedisClient
    package let keys: QueueKeys
    let format: JobFormat
    let limits: QueueLimits
    /// The results that the queue keeps; `nil` if no worker has recorded that.
    var resultsKept: ResultsKept?

    /// - Parameter client: a client of the server that has the queue.
    package init(_ client: RedisClient, _ keys: QueueKeys, format: JobFormat = .native, limits: QueueLimits = .init()) {
        self.client = client
        self.keys = keys
        // Operators see all jobs of the list, whatever their Sidekiq class is.
        self.format = format.withoutClasses
        self.limits = limits
    }

    // MARK: Reading

    /// Reads one page of any place except a lane's claims. Sorted jobs are read in the order of sending.
    /// - Parameters:
    ///   - fromHead: true to begin at the end from which workers claim.
    ///   - latestFirst: true to begin with the postponed job that is due last.
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
            case .failed: (keys.failed, .left)
            case .claimed(let lane): (keys.claimed(lane), .left)
            }
        let isSet = place.isPostponed || place == .sorted
        let isFromLeft = isSet ? place == .sorted || !latestFirst : fromHead == (head == .left)
        return try await read(
            key, kind: isSet ? "set" : fromHead ? "head" : "list", cursor: cursor, limit: limit,
            end: isFromLeft ? .left : .right
        ) { position, size, body, now in
            let format = decodes ? format : nil
            if place == .sorted { return StoredJob(sorted: body, size: size, format: format) }
            let due = place.isPostponed ? Int64(bounding: Double(position) ?? 0) : nil
            return StoredJob(body, size: size, due: due, hasFailed: place == .failed, format: format)
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
    ///   - inOrder: true to begin with the jobs that are sent next. False to miss no job that a worker sorts in the meantime: the list is
    ///     read from its tail, and the sorted jobs after it.
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
                // Counts end at once when an operator stops them.
                try Task.checkCancellation()
                let page = try await page(place, after: cursor, fromHead: inOrder, decodes: decodes)
                looked += page.jobs.count
                let matching = page.jobs.filter { filter.matches($0, now: page.now) }
                guard try await body(place, matching, page.now) else { return looked }
                cursor = page.cursor
                // Postponed jobs are in the order of their time.
                if place.isPostponed, let last = page.jobs.last?.due, let end = filter.dueBefore, last >= end { break }
            } while cursor != nil
        }
        return looked
    }

    /// The error for a cursor that no reply had, in the form of a script's error.
    private static var unknownCursor: RedisError {
        .server(RedisServerError(text: "ERR jobs: CURSOR that no reply had"))
    }

    /// A part of the jobs that match, and the place at which to continue.
    package struct Listing: Sendable {
        /// Redis' time in milliseconds since 1970.
        package var now: Int64 = 0
        package var jobs: [StoredJob] = []
        /// The number of jobs that were examined, matching or not.
        package var looked = 0
        /// The cursor of the next part; `nil` after the last.
        package var cursor: String?
    }

    /// Returns some of the jobs that match. With an `end`, a long queue does not take more time.
    /// - Parameters:
    ///   - cursor: the cursor of the previous part; `nil` for the first.
    ///   - limit: the maximum number of jobs.
    ///   - end: the search ends at this time, even if too few jobs were found. At least one page of Redis is read.
    ///   - latestFirst: true to begin with the postponed job that is due last.
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
        if cursor != nil {
            guard parts.count == 2 else { throw Self.unknownCursor }
            if let index = places.firstIndex(where: { $0.name == parts[0] }) {
                (places, inner) = (places[index...], InnerCursor(parts[1]))
            } else {
                // The lane has ended, so the listing continues with the next lane.
                let start = Place.claimed(lane: "").name
                guard parts[0].hasPrefix(start) else { throw Self.unknownCursor }
                let next = places.firstIndex { $0.name.hasPrefix(start) ? $0.name > parts[0] : $0.isPostponed }
                places = next.map { places[$0...] } ?? []
            }
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
                        place, after: inner.position, limit: wanted, fromHead: true, latestFirst: latestFirst,
                        decodes: true)
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

    /// Returns the places in the order in which a job moves through them. With `inOrder`, the places of waiting jobs are in the order of
    /// sending.
    private func places(_ filter: JobFilter, inOrder: Bool) async throws -> [Place] {
        let waiting: [Place] = inOrder ? [.inbox, .sorted, .list] : [.list, .inbox, .sorted]
        var places = filter.includes(.waiting) ? waiting : []
        if filter.includes(.claimed) {
            // Sorted by name, because a listing continues from call to call, and the order of leases changes with each renewal.
            let lanes = try await client.call(RedisCommand("ZRANGE", keys.workers, "0", "-1")).root.children
            places += lanes.compactMap(\.string).sorted().map { .claimed(lane: $0) }
        }
        if filter.includes(.scheduled) || filter.includes(.deferred) { places.append(.retry) }
        if filter.includes(.retrying) { places.append(.failed) }
        return places
    }

    private func sweepClaims(
        of lane: String, _ filter: JobFilter, _ decodes: Bool, _ looked: inout Int,
        _ body: (Place, [StoredJob], Int64) async throws -> Bool
    ) async throws -> Bool {
        let key = keys.claimed(lane)
        // Sorted by number, because the order of HKEYS may differ between calls.
        let numbered = try await client.call(RedisCommand("HKEYS", key)).root.children.compactMap(\.string)
            .map { (number: ClaimID(field: $0)?.number ?? .max, field: $0) }
        var fields = numbered.sorted { $0 < $1 }.map(\.field)[...]
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
}
