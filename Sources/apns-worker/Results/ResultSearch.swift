import NIOCore
import Operations
import PushQueue
import Redis

/// Reads the results of several queues in order of time, one page per queue at a time.
struct ResultSearch {
    /// The approximate number of results per read, which Redis copies within a millisecond.
    private static let page = 500

    private struct Stream {
        let keys: QueueKeys
        let client: RedisClient
        var results: ArraySlice<StoredResult> = []
        var page: ResultPage?
        /// The last entry that was read; `nil` before the first page.
        var position: String?
        /// True once a page was incomplete, or could not be read.
        var isAtEnd = false
        /// True if the last page could not be read.
        var isUnread = false
    }

    let newestFirst: Bool
    private let since: Int64?
    private let until: Int64?
    private var streams: [Stream]
    /// The number of results read.
    private(set) var searched = 0
    /// The queues that could not be read.
    private(set) var unread = UnreadParts()

    /// - Parameters:
    ///   - since: the time of the oldest result, in milliseconds since 1970.
    ///   - until: the time of the newest result.
    ///   - unread: the queues that have no client.
    init(
        _ queues: [(keys: QueueKeys, client: RedisClient)], since: Int64?, until: Int64?, newestFirst: Bool,
        unread: UnreadParts
    ) {
        self.since = since
        self.until = until
        self.newestFirst = newestFirst
        self.unread = unread
        streams = queues.map { Stream(keys: $0.keys, client: $0.client) }
    }

    /// Returns the next result; `nil` after the last one.
    /// - Throws: `RedisError`, if no queue can be read.
    mutating func next() async throws -> ResultLine? {
        var best: (index: Int, entry: StoredResult.Place)?
        for index in streams.indices {
            if streams[index].results.isEmpty { try await readIfPossible(index) }
            guard let place = streams[index].results.first?.place else { continue }
            if let other = best?.entry, newestFirst ? place <= other : place >= other { continue }
            best = (index, place)
        }
        guard let index = best?.index, let result = streams[index].results.popFirst() else { return nil }
        searched += 1
        return ResultLine(queue: streams[index].keys.queue, result: result)
    }

    private mutating func readIfPossible(_ index: Int) async throws {
        do {
            try await read(index)
        } catch {
            try unread.record(error, of: UnreadParts.name(of: streams[index].keys.queue))
            streams[index].isAtEnd = true
            streams[index].isUnread = true
            if streams.allSatisfy(\.isUnread) { try unread.throwFirst() }
        }
    }

    private mutating func read(_ index: Int) async throws {
        let stream = streams[index]
        guard !stream.isAtEnd else { return }
        let bounds: (first: String, last: String)
        if newestFirst {
            bounds = (stream.position.map { "(\($0)" } ?? until.map { "\($0)" } ?? "+", since.map { "\($0)" } ?? "-")
        } else {
            bounds = (stream.position.map { "(\($0)" } ?? since.map { "\($0)" } ?? "-", until.map { "\($0)" } ?? "+")
        }
        let count = ResultPage.size(for: Self.page, after: stream.page)
        let page = try await ResultPage.read(
            from: bounds.first, to: bounds.last, newestFirst: newestFirst, count: count, stream.client, stream.keys)
        streams[index].results = page.results[...]
        streams[index].page = page
        streams[index].position = page.entries.last ?? stream.position
        streams[index].isAtEnd = page.entries.count < count
        streams[index].isUnread = false
    }

    /// Waits until there may be more results for ``next()`` to return. Queues that could not be read are read again.
    /// - Throws: `RedisError`.
    mutating func waitForMore() async throws {
        for index in streams.indices { streams[index].isAtEnd = false }
        if streams.count == 1 {
            let stream = streams[0]
            try await StoredResult.wait(
                after: stream.position ?? StoredResult.beginning, milliseconds: 1000, stream.client, stream.keys)
        } else {
            // One command can't wait for streams in several slots of a Cluster.
            try await Task.sleep(for: .milliseconds(250))
        }
    }
}
