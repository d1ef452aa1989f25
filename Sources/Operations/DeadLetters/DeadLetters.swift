import NIOCore
import PushQueue
import Redis

/// A queue's dead letters, processed a page at a time so that a million of them do not block Redis.
///
/// Each page is one call of the script `page.lua`, which reads, chooses and acts atomically. So an action can be
/// interrupted between two pages, repeated, and run by several clients at once: no job is lost or doubled.
public struct DeadLetters: Sendable {
    /// The action on the chosen dead letters.
    public enum Action: Sendable, Equatable {
        /// Put the jobs back into the queue, and remove the dead letters.
        /// - Parameters:
        ///   - first: true to put them at the head of the list instead of its end.
        ///   - keepsAttempts: true to count their earlier attempts; else the jobs start with none.
        case requeue(first: Bool, keepsAttempts: Bool)
        /// Put another job to the end of the queue for each, and remove them.
        case replace(with: ByteBuffer)
        /// Delete the dead letters, and the jobs with them.
        case delete
        /// Count all dead letters, or only those that can be requeued.
        case count(onlyReadable: Bool)
        /// Return their headers.
        case list
        /// Return their headers and the originals.
        case show
    }

    /// A dead letter that was returned.
    public struct Listed: Sendable, Equatable {
        /// The key by which operators name it: ten hex digits.
        public var key: String
        /// The time at which it was buried, in milliseconds since 1970.
        public var at: Int64
        /// The dead letter. Its original is empty unless it was requested. A member that is not a dead letter is
        /// returned whole in the header.
        public var letter: DeadLetter
    }

    /// The result of a page.
    public struct Page: Sendable, Equatable {
        /// The cursor of the next page; `nil` after the last.
        public var cursor: String?
        /// The number of dead letters that were examined.
        public var looked: Int
        /// The number of dead letters that were chosen and, depending on the action, moved or deleted.
        public var chosen: Int
        /// The chosen dead letters by reason.
        public var reasons: [String: Int]
        /// The dead letters, if the action returns them.
        public var letters: [Listed]
    }

    /// The number of dead letters that one call examines: Redis' other clients do not notice so few.
    public static let pageSize = 100

    private let client: RedisClient
    private let keys: QueueKeys

    /// The queue's name.
    package var queue: String { keys.queue }

    /// - Parameter client: a client of the server that has the queue.
    public init(_ client: RedisClient, _ keys: QueueKeys) {
        self.client = client
        self.keys = keys
    }

    /// The beginning of cursors that are about the cancelled jobs.
    private static let cancelled = "cancelled "

    /// Processes one page, of the dead letters and then of the cancelled jobs, as far as the filter can match them.
    /// - Parameters:
    ///   - cursor: the cursor of the previous page; `nil` for the first. Dead letters that are added after the first
    ///     page are not requeued or deleted.
    ///   - limit: the maximum number of dead letters to choose.
    ///   - newestFirst: true to begin with the newest instead of the oldest.
    /// - Throws: `RedisError`, or ``QueueConnection/Failure/unexpectedReply(_:)``.
    public func page(
        _ action: Action, _ filter: DeadLetterFilter, after cursor: String?, limit: Int, newestFirst: Bool = false
    ) async throws -> Page {
        let first = filter.matchesDead ? "start" : Self.cancelled + "start"
        var inner = cursor ?? first
        let areCancelled = inner.hasPrefix(Self.cancelled)
        if areCancelled { inner.removeFirst(Self.cancelled.count) }
        var command = RedisCommand("EVAL", expecting: 32, bytes: 24_000)
        // The source, not its digest: after a failover the new master does not know it. Redis reads it in about 0.1 ms.
        command.append(QueueScript.pageDeadLetters.source)
        command.append(4)
        command.append(areCancelled ? keys.cancelled : keys.dead)
        command.append(keys.jobs)
        command.append(keys.statsPrefix)
        command.append(areCancelled ? keys.cancelledBytes : keys.deadBytes)
        command.append(action.name)
        command.append(inner)
        command.append(Self.pageSize)
        command.append(max(1, limit))
        filter.append(to: &command)
        if case .replace(let job) = action {
            command.append("instead")
            command.append(job)
        }
        let others = (newestFirst ? ["newest"] : []) + (keys.head == .right ? ["right"] : [])
        for option in action.options + others {
            command.append(option)
            command.append(1)
        }
        var page = try Self.read(try await client.call(command), action)
        if areCancelled {
            page.cursor = page.cursor.map { Self.cancelled + $0 }
        } else if page.cursor == nil, filter.matchesCancelled {
            page.cursor = Self.cancelled + "start"
        }
        return page
    }

    private static func read(_ reply: RESPReply, _ action: Action) throws -> Page {
        var elements = reply.root.children
        let failure = QueueConnection.Failure.unexpectedReply(.pageDeadLetters)
        guard elements.next()?.string == "letters", let cursor = elements.next()?.string,
            let looked = elements.next()?.number, let chosen = elements.next()?.number,
            let reasonCount = elements.next()?.number
        else { throw failure }
        var page = Page(
            cursor: cursor == "end" ? nil : cursor, looked: looked, chosen: chosen, reasons: [:], letters: [])
        for _ in 0..<reasonCount {
            guard let reason = elements.next()?.string, let count = elements.next()?.number else { throw failure }
            page.reasons[reason] = count
        }
        while let key = elements.next()?.string {
            guard let score = elements.next()?.string.flatMap(Double.init), let header = elements.next()?.bytes,
                let original = action == .show ? elements.next()?.bytes : ByteBuffer()
            else { throw failure }
            let at = Int64(bounding: score)
            page.letters.append(Listed(key: key, at: at, letter: DeadLetter(header: header, original: original)))
        }
        return page
    }
}

extension DeadLetters.Action {
    fileprivate var name: String {
        switch self {
        case .requeue, .replace: "requeue"
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
        case .replace, .delete, .list, .show: []
        }
    }
}

/// The pace at which dead letters are requeued: a number per second, in small portions, without a burst after a delay.
public struct RequeuePace: Sendable {
    /// The number of portions per second, unless that is less than one dead letter for each.
    private static let portions = 10

    private let interval: TimeAmount
    private let portion: Int
    /// The time of the next portion.
    private var next = NIODeadline.distantPast

    /// - Parameter perSecond: dead letters per second, from 1; `nil` for no limit.
    public init(perSecond: Int?) {
        guard let perSecond, perSecond > 0 else {
            (interval, portion) = (.zero, .max)
            return
        }
        portion = max(1, perSecond / Self.portions)
        interval = .nanoseconds(1_000_000_000 * Int64(portion) / Int64(perSecond))
    }

    /// Returns the next portion.
    /// - Returns: the number of dead letters to move, and the time to wait before that.
    public func portion(at now: NIODeadline) -> (letters: Int, wait: TimeAmount) {
        (portion, max(.zero, next - now))
    }

    /// Records that a portion, or a part of one, was moved.
    public mutating func moved(_ letters: Int, at now: NIODeadline) {
        guard portion != .max, letters > 0 else { return }
        let share = Double(interval.nanoseconds) * Double(letters) / Double(portion)
        // A delay is not followed by a burst.
        next = max(next, now - interval) + .nanoseconds(Int64(share))
    }
}
