import NIOCore
import Redis

/// A queue's dead letters, gone through a page at a time, so that a million of them do not hold up Redis.
///
/// Each page is one call of the script `page.lua`, which looks, chooses and acts in one moment. So whatever is done here may be
/// interrupted between two pages, done again, and done by several at once: no job is lost or doubled.
public struct DeadLetters: Sendable {
    /// The action on the chosen dead letters.
    public enum Action: Sendable, Equatable {
        /// The jobs go back into the queue, and the letters away.
        /// - Parameters:
        ///   - first: whether to the head of the list, and not to its end.
        ///   - keepsAttempts: whether the attempts that were made count; else the jobs begin anew.
        case requeue(first: Bool, keepsAttempts: Bool)
        /// They go away, and the jobs with them.
        case delete
        /// They are counted; either all, or those that can be requeued.
        case count(onlyReadable: Bool)
        /// Their lines are read.
        case list
        /// Their lines and the originals are read.
        case show
    }

    /// A letter that was read.
    public struct Listed: Sendable, Equatable {
        /// The key that operators name it by: ten hex digits.
        public var key: String
        /// When it was written, in milliseconds since 1970.
        public var at: Int64
        /// The letter. Its original is empty unless it was asked for. What is no letter has it all in its header.
        public var letter: DeadLetter
    }

    /// The result of a page.
    public struct Page: Sendable, Equatable {
        /// Where to go on; `nil` after the last page.
        public var cursor: String?
        /// How many letters were looked at.
        public var looked: Int
        /// How many were chosen and, where the action says so, moved or deleted.
        public var chosen: Int
        /// How many of those have which reason.
        public var reasons: [String: Int]
        /// The letters, where they were to be read.
        public var letters: [Listed]
    }

    /// How many letters are looked at in one call: well below what Redis' other clients would notice.
    public static let pageSize = 100

    private let client: RedisClient
    private let keys: QueueKeys

    /// The queue's name.
    package var queue: String { keys.queue }

    /// - Parameter client: of the server that has the queue.
    public init(_ client: RedisClient, _ keys: QueueKeys) {
        self.client = client
        self.keys = keys
    }

    /// Goes through one page.
    /// - Parameters:
    ///   - cursor: what the page before said; `nil` for the first. What becomes a dead letter after the first page is not requeued
    ///     or deleted.
    ///   - limit: how many letters are chosen at the most.
    ///   - newestFirst: else the oldest come first.
    /// - Throws: `RedisError`, or ``QueueConnection/Failure/unexpectedReply(_:)``.
    public func page(
        _ action: Action, _ filter: DeadLetterFilter, after cursor: String?, limit: Int, newestFirst: Bool = false
    ) async throws -> Page {
        var command = RedisCommand("EVAL", expecting: 32, bytes: 24_000)
        // Whole each time: after a failover the new master does not know it, and Redis reads it in some 0.1 ms.
        command.append(QueueScript.pageDeadLetters.source)
        command.append(4)
        command.append(keys.dead)
        command.append(keys.jobs)
        command.append(keys.statsPrefix)
        command.append(keys.deadBytes)
        command.append(action.name)
        command.append(cursor ?? "start")
        command.append(Self.pageSize)
        command.append(max(1, limit))
        filter.append(to: &command)
        let others = (newestFirst ? ["newest"] : []) + (keys.head == .right ? ["right"] : [])
        for option in action.options + others {
            command.append(option)
            command.append(1)
        }
        return try Self.read(try await client.call(command), action)
    }

    private static func read(_ reply: RESPReply, _ action: Action) throws -> Page {
        var elements = reply.root.children
        let failure = QueueConnection.Failure.unexpectedReply(.pageDeadLetters)
        guard elements.next()?.string == "letters", let cursor = elements.next()?.string,
            let looked = elements.next()?.integer, let chosen = elements.next()?.integer,
            let reasonCount = elements.next()?.integer
        else { throw failure }
        var page = Page(
            cursor: cursor == "end" ? nil : cursor, looked: looked, chosen: chosen, reasons: [:], letters: [])
        for _ in 0..<reasonCount {
            guard let reason = elements.next()?.string, let count = elements.next()?.integer else { throw failure }
            page.reasons[reason] = count
        }
        while let key = elements.next()?.string {
            guard let score = elements.next()?.string.flatMap(Double.init), let header = elements.next()?.bytes,
                let original = action == .show ? elements.next()?.bytes : ByteBuffer()
            else { throw failure }
            let at = Int64(exactly: score.rounded()) ?? 0
            page.letters.append(Listed(key: key, at: at, letter: DeadLetter(header: header, original: original)))
        }
        return page
    }
}

extension DeadLetters.Action {
    fileprivate var name: String {
        switch self {
        case .requeue: "requeue"
        case .delete: "delete"
        case .count: "count"
        case .list: "list"
        case .show: "show"
        }
    }

    fileprivate var options: [String] {
        switch self {
        case .requeue(let first, let keepsAttempts): (first ? ["first"] : []) + (keepsAttempts ? ["keep"] : [])
        case .count(let onlyReadable): onlyReadable ? ["readable"] : []
        case .delete, .list, .show: []
        }
    }
}

/// How fast letters are requeued: so many a second, in small portions, and never more at once because there was a pause.
public struct RequeuePace: Sendable {
    /// How many portions a second has, unless there is less than one letter for each.
    private static let portions = 10

    private let interval: TimeAmount
    private let portion: Int
    /// When the next portion is due.
    private var next = NIODeadline.distantPast

    /// - Parameter perSecond: letters a second, from 1; `nil` for as fast as it goes.
    public init(perSecond: Int?) {
        guard let perSecond, perSecond > 0 else {
            (interval, portion) = (.zero, .max)
            return
        }
        portion = max(1, perSecond / Self.portions)
        interval = .nanoseconds(1_000_000_000 * Int64(portion) / Int64(perSecond))
    }

    /// Asks for a portion.
    /// - Returns: how many letters may be moved now, and how long to wait before, if that is not yet.
    public func portion(at now: NIODeadline) -> (letters: Int, wait: TimeAmount) {
        (portion, max(.zero, next - now))
    }

    /// A portion has been moved, or a part of one.
    public mutating func moved(_ letters: Int, at now: NIODeadline) {
        guard portion != .max, letters > 0 else { return }
        let share = Double(interval.nanoseconds) * Double(letters) / Double(portion)
        // A delay is not followed by a burst.
        next = max(next, now - interval) + .nanoseconds(Int64(share))
    }
}
