import NIOCore
import PushQueue
import Redis

/// A queue's dead letters, processed a page at a time so that a million of them do not block Redis.
///
/// Each page is one call of the script `page.lua`, which reads, chooses and acts atomically. So an action can be
/// interrupted between two pages, repeated, and run by several clients at once: no job is lost or doubled.
package struct DeadLetters: Sendable {
    package enum Action: Sendable, Equatable {
        /// Put the jobs back into the queue, and remove the dead letters.
        /// - Parameters:
        ///   - first: true to put them at the head of the list instead of its end.
        ///   - keepsAttempts: true to count their earlier attempts; else the jobs start with none.
        case requeue(first: Bool, keepsAttempts: Bool)
        /// Put another job at the end of the queue for each dead letter, and remove the dead letters.
        case replace(with: ByteBuffer)
        /// Delete the dead letters, and the jobs with them.
        case delete
        /// Count all dead letters, or only the readable dead letters, which can be requeued.
        case count(onlyReadable: Bool)
        /// Return their headers.
        case list
        /// Return their headers and the originals.
        case show
    }

    package struct Listed: Sendable, Equatable {
        /// The key by which operators name the dead letter: ten hex digits.
        package var key: String
        /// The time when the job became a dead letter, in milliseconds since 1970.
        package var at: Int64
        /// The dead letter. The original is empty unless it was requested. Another member of the set is returned whole in the header.
        package var letter: DeadLetter
    }

    package struct Page: Sendable, Equatable {
        /// The cursor of the next page; `nil` after the last.
        package var cursor: String?
        /// The number of dead letters that were examined, chosen or not.
        package var looked: Int
        /// The number of dead letters that were chosen and, depending on the action, moved or deleted.
        package var chosen: Int
        /// The numbers of chosen dead letters by reason.
        package var reasons: [String: Int]
        /// The dead letters, if the action returns them.
        package var letters: [Listed]
    }

    /// The maximum number of dead letters that one call examines, so that other clients of Redis notice no delay.
    package static let pageSize = 100

    private let client: RedisClient
    package let keys: QueueKeys

    /// - Parameter client: a client of the server that has the queue.
    package init(_ client: RedisClient, _ keys: QueueKeys) {
        self.client = client
        self.keys = keys
    }

    /// The beginning of cursors among the cancelled jobs.
    private static let cancelled = "cancelled "

    /// Processes one page: first of the dead letters, then of the cancelled jobs, as far as the filter can match them.
    /// - Parameters:
    ///   - cursor: the cursor of the previous page; `nil` for the first. Dead letters that are added after the first
    ///     page are not requeued or deleted.
    ///   - limit: the maximum number of dead letters to choose.
    ///   - newestFirst: true to begin with the newest instead of the oldest.
    /// - Throws: `RedisError`, or `QueueFailure/unexpectedReply(_:)`.
    package func page(
        _ action: Action, _ filter: DeadLetterFilter, after cursor: String?, limit: Int, newestFirst: Bool = false
    ) async throws -> Page {
        let first = filter.matchesDead ? "start" : Self.cancelled + "start"
        var inner = cursor ?? first
        let areCancelled = inner.hasPrefix(Self.cancelled)
        if areCancelled { inner.removeFirst(Self.cancelled.count) }
        var page = try await QueueScript.pageDeadLetters.run(
            client,
            [
                areCancelled ? keys.cancelled : keys.dead, keys.jobs, keys.statsPrefix,
                areCancelled ? keys.cancelledBytes : keys.deadBytes, keys.campaignPrefix,
            ]
        ) { command in
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
        } reading: {
            Self.read(&$0, action)
        }
        if areCancelled {
            page.cursor = page.cursor.map { Self.cancelled + $0 }
        } else if page.cursor == nil, filter.matchesCancelled {
            page.cursor = Self.cancelled + "start"
        }
        return page
    }

    private static func read(_ reply: inout ScriptReply, _ action: Action) -> Page {
        if reply.text() != "letters" { reply.refuse() }
        let cursor = reply.text()
        var page = Page(
            cursor: cursor == "end" ? nil : cursor, looked: reply.number(), chosen: reply.number(), reasons: [:],
            letters: [])
        for _ in 0..<min(reply.number(), reply.count) { page.reasons[reply.text()] = reply.number() }
        while !reply.isAtEnd {
            let (key, score, header) = (reply.text(), Double(reply.text()), reply.bytes())
            guard let score else {
                reply.refuse()
                return page
            }
            let letter = DeadLetter(header: header, original: action == .show ? reply.bytes() : ByteBuffer())
            page.letters.append(Listed(key: key, at: Int64(bounding: score), letter: letter))
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

/// The pace of requeues: a number per second, in small portions, without a burst after a delay.
package struct RequeuePace: Sendable {
    /// The number of portions per second. Low rates have fewer portions, because a portion has at least one dead letter.
    private static let portions = 10

    private let interval: TimeAmount
    private let portion: Int
    private var next = NIODeadline.distantPast

    /// - Parameter perSecond: dead letters per second, at least 1; `nil` for no limit.
    package init(perSecond: Int?) {
        guard let perSecond, perSecond > 0 else {
            (interval, portion) = (.zero, .max)
            return
        }
        portion = max(1, perSecond / Self.portions)
        interval = .nanoseconds(1_000_000_000 * Int64(portion) / Int64(perSecond))
    }

    /// Returns the size of the next portion, and the time to wait for it.
    func portion(at now: NIODeadline) -> (letters: Int, wait: TimeAmount) {
        (portion, max(.zero, next - now))
    }

    /// Waits for the next portion.
    /// - Returns: the number to move; 0 if it was interrupted.
    func wait(_ isInterrupted: () -> Bool) async throws -> Int {
        while true {
            let (portion, wait) = portion(at: .now())
            if wait <= .zero { return portion }
            if isInterrupted() { return 0 }
            // Short pieces, so that an interruption is noticed.
            try await Task.sleep(for: .nanoseconds(min(wait.nanoseconds, 50_000_000)))
        }
    }

    /// Records that a portion, or a part of a portion, was moved.
    mutating func moved(_ letters: Int, at now: NIODeadline) {
        guard portion != .max, letters > 0 else { return }
        let share = Double(interval.nanoseconds) * Double(letters) / Double(portion)
        // A delay is not followed by a burst.
        next = max(next, now - interval) + .nanoseconds(Int64(share))
    }
}
