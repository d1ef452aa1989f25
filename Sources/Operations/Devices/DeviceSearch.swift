import NIOCore
import PushJob
import PushQueue
import Redis

/// A kind of record about a device. The raw value is its spelling for programs.
package enum DeviceRecordKind: String, CaseIterable, Sendable {
    case job
    case claimedJob = "claimed_job"
    case deadLetter = "dead_letter"
    case cancelledJob = "cancelled_job"
    case result
    case parkedResult = "parked_result"
    /// The reservation of a job's id that contains a token.
    case reservedID = "reserved_id"
    /// An operator's command about a job's id that contains a token.
    case jobCommand = "job_command"
    case invalidToken = "invalid_token"
    case registration
    case throttle
    /// A token's entry in the stream of changes to invalid tokens.
    case announcement

    /// The noun that people see.
    var noun: String { self == .reservedID ? "reserved ID" : rawValue.replacing("_", with: " ") }
}

/// Finds the values in Redis that name some devices. Values are read page by page and searched here, not in Redis.
struct DeviceSearch {
    struct Found {
        let kind: DeviceRecordKind
        let key: String
        /// The place of the value in the key: the index in a list, the score in a sorted set, the ID of a stream's entry, the field of a
        /// hash, or the lane that has claimed it.
        let place: String
        let value: ByteBuffer
        /// The results of an entry that name a device.
        var results: [StoredResult] = []

        var count: Int { kind == .result ? max(1, results.count) : 1 }
    }

    /// Gets the values that were found in a page, all of one key. Returns the number of values that it has removed from the key.
    typealias Page = ([Found]) async throws -> Int

    let finder: TokenFinder
    let jobs: QueueJobs
    /// The number of jobs larger than 16 MiB, which are not searched.
    private(set) var large = 0

    private var keys: QueueKeys { jobs.keys }
    private var client: RedisClient { jobs.client }

    init(_ finder: TokenFinder, _ jobs: QueueJobs) { (self.finder, self.jobs) = (finder, jobs) }

    /// The end of the list where producers push. The list is read from this end.
    var tail: QueueKeys.Head { keys.head == .left ? .right : .left }

    /// Finds all values of the queue that name the devices, without removing them.
    mutating func all(_ page: ([Found]) -> Void) async throws {
        func keep(_ found: [Found]) -> Int {
            page(found)
            return 0
        }
        try await waitingJobs(keep)
        try await claimedJobs(keep)
        try await deadLetters(keep)
        let names = try await variableKeys()
        try await results(names, keep)
        try await ids(names, keep)
    }

    // MARK: Jobs

    mutating func waitingJobs(_ page: Page) async throws {
        try await values(.job, keys.jobs, "list", end: tail, page)
        try await values(.job, keys.inbox, "list", end: .right, page)
        // These sets are searched after the list, because a worker may move jobs from the list to a set in the meantime.
        for key in [keys.sorted] + keys.postponed { try await values(.job, key, "set", page) }
    }

    func claimedJobs(_ page: Page) async throws {
        var filter = JobFilter()
        filter.states = [.claimed]
        try await jobs.sweep(filter, decodes: false) { place, claims, _ in
            guard case .claimed(let lane) = place else { return true }
            let found = claims.filter { finder.isIn($0.body) }.map {
                Found(kind: .claimedJob, key: keys.claimed(lane), place: lane, value: $0.body)
            }
            if !found.isEmpty { _ = try await page(found) }
            return true
        }
    }

    mutating func deadLetters(_ page: Page) async throws {
        try await values(.deadLetter, keys.dead, "set", page)
        try await values(.cancelledJob, keys.cancelled, "set", page)
    }

    /// Finds the values of a list or a sorted set.
    private mutating func values(
        _ kind: DeviceRecordKind, _ key: String, _ type: String, end: QueueKeys.Head = .left, _ page: Page
    ) async throws {
        var cursor: String?
        repeat {
            try Task.checkCancellation()
            let read = try await QueueScript.pageJobs.run(client, [key]) { command in
                command.append(type)
                command.append(cursor ?? "start")
                command.append(QueueJobs.pageSize)
                command.append(QueueJobs.pageBytes)
                command.append(end.rawValue)
            } reading: { reply in
                _ = reply.number()
                var values: (cursor: String?, all: [(place: String, size: Int, value: ByteBuffer)])
                values = (reply.textIfAny(), [])
                while !reply.isAtEnd { values.all.append((reply.text(), reply.number(), reply.bytes())) }
                return values
            }
            large += read.all.count { $0.size > $0.value.readableBytes }
            let found = read.all.filter { $0.size == $0.value.readableBytes && finder.isIn($0.value) }.map {
                Found(kind: kind, key: key, place: $0.place, value: $0.value)
            }
            let removed = found.isEmpty ? 0 : try await page(found)
            cursor = type == "list" ? read.cursor.map { Self.cursor($0, after: removed) } : read.cursor
        } while cursor != nil
    }

    /// Corrects the index in a list's cursor after some of the read jobs were removed. A smaller index reads jobs twice, but a larger one
    /// would miss some.
    private static func cursor(_ cursor: String, after removed: Int) -> String {
        let parts = cursor.split(separator: " ", maxSplits: 1)
        guard parts.count == 2, let index = Int(parts[0]) else { return cursor }
        return "\(max(1, index - removed)) \(parts[1])"
    }

    // MARK: Results

    /// The number of entries of a page. The largest entries have some 130 KB.
    private static let entries = 50

    /// - Parameter names: the keys that ``variableKeys()`` has returned.
    func results(_ names: [String], _ page: Page) async throws {
        try await entries(.result, keys.results, page)
        for name in names where name.hasPrefix(keys.parkedResults("")) {
            try await entries(.parkedResult, name, page)
        }
    }

    private func entries(_ kind: DeviceRecordKind, _ key: String, _ page: Page) async throws {
        try await Self.entries(of: key, client) { entries in
            let found = entries.compactMap { entry -> Found? in
                guard entry.fields.contains(where: { finder.isIn($0.value) }) else { return nil }
                let text = entry.fields.first { $0.name == "results" }?.value ?? ByteBuffer()
                let own = entry.results.filter { result in result.fields.contains { finder.isIn($0.value) } }
                return Found(kind: kind, key: key, place: entry.id, value: text, results: own)
            }
            if !found.isEmpty { _ = try await page(found) }
        }
    }

    static func entries(
        of key: String, _ client: RedisClient, _ page: ([ResultEntry]) async throws -> Void
    ) async throws {
        var start = "-"
        while true {
            try Task.checkCancellation()
            let reply = try await client.call(RedisCommand("XRANGE", key, start, "+", "COUNT", "\(entries)"))
            let entries = reply.root.children.compactMap(ResultEntry.init)
            try await page(entries)
            guard let last = entries.last, reply.root.count == Self.entries else { return }
            start = "(\(last.id)"
        }
    }

    // MARK: Names

    /// Returns the queue's keys whose names contain an id or the name of a consumer group.
    func variableKeys() async throws -> [String] {
        let prefixes = [keys.parkedResults("")] + idPrefixes
        var (names, cursor) = ([String](), "0")
        // One pattern for both prefixes, because each pattern reads all names of the server.
        let pattern = String(keys.retry.dropLast("retry".count)).escapedForMatch + "*"
        repeat {
            try Task.checkCancellation()
            var command = RedisCommand("SCAN", cursor, "MATCH", pattern, "COUNT")
            command.append(QueueSearch.batch)
            let reply = try await client.call(command)
            guard reply.root.count == 2 else { break }
            cursor = reply.root[0].string ?? "0"
            for name in reply.root[1].children.compactMap(\.string) where prefixes.contains(where: name.hasPrefix) {
                names.append(name)
            }
        } while cursor != "0"
        return names
    }

    /// The prefixes of Redis keys whose names end with an ID, or with a key that a producer chose.
    private var idPrefixes: [String] {
        [keys.unique, keys.newest, keys.announced].map { String(buffer: $0(ByteBuffer())) }
    }

    /// Finds IDs that contain a token: reserved IDs, keys and IDs of newest jobs, and IDs in operators' commands.
    func ids(_ names: [String], _ page: Page) async throws {
        let (newest, prefixes) = (String(buffer: keys.newest(ByteBuffer())), idPrefixes)
        for name in names {
            try Task.checkCancellation()
            guard let prefix = prefixes.first(where: name.hasPrefix) else { continue }
            var isFound = finder.isIn(ByteBuffer(substring: name.dropFirst(prefix.count)))
            if !isFound, prefix == newest, let id = try await client.call(RedisCommand("GET", name)).root.bytes {
                isFound = finder.isIn(id)
            }
            guard isFound else { continue }
            _ = try await page([Found(kind: .reservedID, key: name, place: "", value: ByteBuffer(string: name))])
        }
        let fields = try await client.call(RedisCommand("HKEYS", keys.jobCommands)).root.children
        let found = fields.compactMap(\.string).filter { $0.hasPrefix("id:") && finder.isIn(ByteBuffer(string: $0)) }
        guard !found.isEmpty else { return }
        _ = try await page(
            found.map { Found(kind: .jobCommand, key: keys.jobCommands, place: $0, value: ByteBuffer(string: $0)) })
    }
}
