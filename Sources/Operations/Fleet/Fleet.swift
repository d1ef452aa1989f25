import NIOConcurrencyHelpers
import NIOCore
import PushQueue
import Redis

/// The queues, workers and apps in a Redis, for commands.
package struct Fleet: Sendable {
    package let clients: RedisClients
    package let prefix: String
    /// The settings of commands that act on this fleet.
    package let access: FleetAccess
    /// The queues that are read even if they have no keys.
    package let named: [QueueKeys]
    /// True if the operator has named these queues; false if they are only the default.
    package let isNamed: Bool
    /// True if other queues are searched for.
    package let searches: Bool
    /// Returns the source of a queue's jobs according to the settings. `isGiven` is false if the settings have only defaults.
    package let configured: @Sendable (_ queue: String) throws -> (source: QueueSource, isGiven: Bool)
    package let waitUntilReady: @Sendable (RedisClient) async throws -> Void
    /// Until this time, clients without a connection are awaited only briefly, because an earlier wait for a connection has failed.
    private let impatientUntil = NIOLockedValueBox(ContinuousClock.now)
    private static let impatience = Duration.seconds(10)

    package init(
        clients: RedisClients, prefix: String, access: FleetAccess = FleetAccess(), named: [QueueKeys], isNamed: Bool,
        searches: Bool,
        configured: @escaping @Sendable (_ queue: String) throws -> (source: QueueSource, isGiven: Bool),
        waitUntilReady: @escaping @Sendable (RedisClient) async throws -> Void
    ) {
        self.clients = clients
        (self.prefix, self.access) = (prefix, access)
        self.named = named
        self.isNamed = isNamed
        self.searches = searches
        self.configured = configured
        self.waitUntilReady = waitUntilReady
    }

    package static let maximumQueues = 500

    /// True for a Redis Cluster, where queues are on different servers.
    package var isCluster: Bool {
        if case .cluster = clients.topology { true } else { false }
    }

    package var sharedKeys: SharedKeys { SharedKeys(prefix: prefix) }

    /// Returns a ready client for the server of a key.
    /// - Throws: `RedisError`.
    package func client(for key: String) async throws -> RedisClient {
        let (client, isReady) = try await clients.eventLoop.submit {
            let client = clients.client(for: key)
            return (client, client.isReady)
        }.get()
        if isReady { return client }
        // If one server of a Cluster is unavailable, the time limit is spent once, and not for each of its slots.
        if impatientUntil.withLockedValue({ $0 }) > .now {
            try await client.waitUntilReady(timeout: .seconds(1))
            return client
        }
        do {
            try await waitUntilReady(client)
        } catch {
            impatientUntil.withLockedValue { $0 = .now + Self.impatience }
            throw error
        }
        return client
    }

    /// Returns Redis' time in milliseconds since 1970, from the server of the first queue or, without queues, of the shared keys.
    package func now(of queues: [QueueKeys] = []) async throws -> Int64 {
        try await client(for: queues.first?.retry ?? sharedKeys.audit).time()
    }

    package func close() async {
        // Errors of connections that are no longer needed do not matter.
        try? await clients.eventLoop.flatSubmit { clients.close() }.get()
    }

    package struct Found: Sendable {
        package var keys: [QueueKeys]
        /// The reason why queues may be missing; `nil` after a complete search.
        package var incomplete: String?
        /// The error of a server that could not be searched for queues.
        package var unsearched: RedisError?

        /// A note for lists that may lack queues.
        package var note: String? {
            unsearched.map { "could not search all servers for queues (\($0)): name them with --queue" } ?? incomplete
        }
    }

    /// - Throws: `RedisError` if no server can be searched.
    package func queues() async throws -> Found {
        guard searches else { return Found(keys: named) }
        var found = try await search()
        // The default queue matters only if no queue is found.
        let isOfInterest = isNamed || found.names.isEmpty
        var queues = isOfInterest ? named : []
        let known = Set(queues.map(\.queue))
        for name in found.names.sorted() where !known.contains(name) {
            guard let keys = try? QueueKeys(prefix: prefix, queue: name) else { continue }
            queues.append(keys)
        }
        if queues.count > Self.maximumQueues {
            found.incomplete = "there are \(queues.count) queues; only \(Self.maximumQueues) are shown"
            queues = Array(queues.prefix(Self.maximumQueues))
        }
        return Found(keys: queues, incomplete: found.incomplete, unsearched: found.unsearched)
    }

    /// The error if the settings and a queue's workers disagree about the source of its jobs.
    package struct Contradiction: Error, Sendable, CustomStringConvertible {
        package let queue: String
        /// The source from which the workers claim, and the source in the settings.
        package let workers, settings: QueueSource

        package var description: String {
            "the workers of queue \(queue) claim \(workers.words), but the settings format and list of this command name "
                + "\(settings.words); omit them, or make them agree"
        }
    }

    /// Returns the source of a queue's jobs, as its workers have recorded it. If no worker has, it follows from the settings.
    /// - Parameter ignoresSettings: true to prefer the workers even if the settings contradict them.
    /// - Throws: ``Contradiction``, `RedisError`, or an error of the settings.
    package func queue(_ keys: QueueKeys, ignoresSettings: Bool = false) async throws -> QueueSource {
        let (own, isGiven) = try configured(keys.queue)
        guard let source = try await QueueSource.read(client(for: keys.source), keys, prefix: prefix) else {
            return own
        }
        if case .cluster = clients.topology, !source.keys.listIsInSlot { return own }
        if isGiven, !ignoresSettings, !source.agrees(with: own) {
            throw Contradiction(queue: keys.queue, workers: source, settings: own)
        }
        return source
    }

    /// - Throws: as ``queue(_:ignoresSettings:)`` does.
    package func jobs(of keys: QueueKeys) async throws -> QueueJobs {
        let source = try await queue(keys)
        var jobs = QueueJobs(
            try await client(for: source.keys.retry), source.keys, format: source.format, limits: source.limits)
        jobs.resultsKept = source.resultsKept
        return jobs
    }

    /// Returns the dead letters of a queue, which can be requeued to its list of jobs.
    /// - Throws: as ``queue(_:ignoresSettings:)`` does.
    package func deadLetters(of keys: QueueKeys) async throws -> DeadLetters {
        let source = try await queue(keys)
        return DeadLetters(try await client(for: source.keys.dead), source.keys)
    }

    /// - Throws: `RedisError`.
    package func record(_ entry: AuditEntry) async throws {
        try await AuditLog.record(entry, client(for: sharedKeys.audit), sharedKeys)
    }

    /// Searches all servers for keys of queues.
    package func search() async throws -> QueueSearch {
        var found = QueueSearch(prefix: prefix)
        let keys = try await masterKeys(&found)
        var failures = 0
        for key in keys {
            do {
                try await search(client(for: key), &found)
            } catch let error as RedisError where failures + 1 < keys.count {
                failures += 1
                found.unsearched = error
            }
        }
        return found
    }

    private func search(_ client: RedisClient, _ found: inout QueueSearch) async throws {
        var cursor = "0"
        var looked = 0
        repeat {
            var command = RedisCommand("SCAN", cursor, "MATCH", found.pattern, "COUNT")
            command.append(QueueSearch.batch)
            do {
                let reply = try await client.call(command)
                guard reply.root.count == 2 else { return }
                cursor = reply.root[0].string ?? "0"
                for key in reply.root[1].children { found.found(key.string ?? "") }
            } catch let error as RedisError {
                guard case .server(let answer) = error else { throw error }
                found.incomplete = "could not search for queues (\(answer.message)): name them with --queue"
                return
            }
            looked += QueueSearch.batch
            if looked >= QueueSearch.maximumKeys, cursor != "0" {
                found.incomplete =
                    "Redis has too many keys to search all of them for queues: name them with --queue"
                return
            }
        } while cursor != "0"
    }

    /// Reads the slots of all servers from the server of the key or, if it is unreachable, from another server.
    private func clusterSlots(_ key: String) async throws -> RESPReply {
        // These keys are in slots far apart, so probably on different servers.
        var keys = [key, "0", "1", "2", "3"]
        while true {
            do {
                return try await client(for: keys.removeFirst()).call(RedisCommand("CLUSTER", "SLOTS"))
            } catch let error as RedisError where !error.isAnswer && !keys.isEmpty {
                continue
            }
        }
    }

    /// Returns one key for each server with slots. The key need not exist.
    private func masterKeys(_ found: inout QueueSearch) async throws -> [String] {
        let any = named.first?.jobs ?? "0"
        guard case .cluster = clients.topology else { return [any] }
        let reply: RESPReply
        do {
            reply = try await clusterSlots(any)
        } catch let error as RedisError {
            guard case .server(let answer) = error else { throw error }
            found.incomplete = "could not search for queues (\(answer.message)): name them with --queue"
            return []
        }
        var slots: [String: Int] = [:]
        for range in reply.root.children where range.count > 2 {
            guard let first = range[0].number, range[2].count > 1 else { continue }
            slots["\(range[2][0].string ?? ""):\(range[2][1].number ?? 0)"] = first
        }
        let wanted = Set(slots.values)
        var keys: [Int: String] = [:]
        var number = 0
        // There are 16,384 slots, so a million names hit each slot.
        while keys.count < wanted.count, number < 1_000_000 {
            let slot = RedisHashSlot.of("\(number)")
            if wanted.contains(slot) { keys[slot] = "\(number)" }
            number += 1
        }
        return Array(keys.values)
    }
}

/// Finds the names of queues among keys. Has no I/O.
package struct QueueSearch {
    /// The maximum number of keys that are searched on each server, because Redis can have other data.
    package static let maximumKeys = 1_000_000
    /// The number of keys of one call, during which Redis does nothing else.
    package static let batch = 2000

    private static let kinds: Set<Substring> = [
        "jobs", "sorted", "retry", "failed", "workers", "dead", "paused", "results",
    ]

    package let prefix: String
    package private(set) var names: Set<String> = []
    /// The reason why queues may be missing; `nil` after a complete search.
    package var incomplete: String?
    /// The error of a server that could not be searched.
    package var unsearched: RedisError?

    /// The pattern for `SCAN`. It matches a few keys of each queue, but no kind of key that can exist a million times.
    package var pattern: String {
        "\(prefix.escapedForMatch):{*}:[jrfwdps][oea]*"
    }

    /// Records the queue of a key, if the key belongs to a queue.
    package mutating func found(_ key: String) {
        let start = "\(prefix):{"
        guard key.hasPrefix(start), let end = key.lastIndex(of: "}") else { return }
        let rest = key[key.index(after: end)...]
        guard rest.hasPrefix(":"), Self.kinds.contains(rest.dropFirst()) else { return }
        names.insert(String(key[key.index(key.startIndex, offsetBy: start.count)..<end]))
    }
}

extension String {
    /// The text as a pattern for `SCAN` that matches only itself.
    package var escapedForMatch: String { map { "*?[]\\^".contains($0) ? "\\\($0)" : "\($0)" }.joined() }
}
