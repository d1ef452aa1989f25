import FoundationEssentials
import Logging
import NIOCore
import Operations
import PrintableText
import PushJob
import PushQueue
import Redis
import Synchronization

/// The sessions of logged-in users, in Redis. So all dashboards of a Redis share them, a restart keeps them, and an ended session is
/// refused everywhere.
///
/// A session is a random value that only the browser has. Redis has its SHA-256. While Redis is unavailable or full, a process accepts the
/// sessions that it has seen or made.
final class Sessions: Sendable {
    struct Session: Codable, Sendable, Equatable {
        let name: String
        /// The user's ``Users/User/fingerprint`` at the login.
        let user: String
        /// The end, in seconds since 1970.
        let until: Int64
    }

    /// The lifetime of a session, in seconds.
    static let lifetime: Int64 = 12 * 3600
    /// The maximum number of sessions that a process remembers for the time when Redis is unavailable.
    private static let maximum = 10_000

    private struct Kept {
        /// `known` has sessions that were found in Redis, `local` those that could not be stored there.
        var known: [String: Session] = [:]
        var local: [String: Session] = [:]
        /// `ended` has sessions that ended early, with the end of their lifetime. `undeleted` has the ended sessions that Redis may still
        /// have.
        var ended: [String: Int64] = [:]
        var undeleted: Set<String> = []
    }

    private let fleet: Fleet
    private let logger: Logger
    private let kept = Mutex(Kept())

    init(_ fleet: Fleet, logger: Logger) { (self.fleet, self.logger) = (fleet, logger) }

    /// Seconds since 1970.
    private static var now: Int64 { Moment.now / 1000 }

    /// Returns a random value for a new session.
    static func value() -> String { Digest.random(32).hex }

    /// Returns true for a text that ``value()`` can return.
    static func isValue(_ text: String) -> Bool { Digest.bytes(hex: text)?.count == 32 }

    /// Begins a session. If Redis is full or unavailable, only this process knows the session.
    /// - Returns: the session's value, for the browser.
    func begin(for user: Users.User) async throws -> String {
        let value = Self.value()
        let session = Session(name: user.name, user: user.fingerprint, until: Self.now + Self.lifetime)
        let key = key(of: value)
        var command = RedisCommand("SET", key, try JSONLine.text(session))
        command.append("EX")
        command.append("\(Self.lifetime)")
        do {
            _ = try await fleet.client(for: key).call(command)
            keep(session, at: key, \.known)
        } catch {
            logger.warning(
                "a session could not be stored, so only this process knows it: \(error)",
                metadata: ["event": "web_session_not_stored"])
            keep(session, at: key, \.local)
        }
        return value
    }

    /// Returns a session that has not ended. While Redis is unavailable, it finds only sessions that this process has seen.
    func find(_ value: String) async -> Session? {
        guard Self.isValue(value) else { return nil }
        let key = key(of: value)
        guard kept.withLock({ $0.ended[key] == nil }) else {
            await delete()
            return nil
        }
        var session: Session?
        do {
            let text = try await fleet.client(for: key).call(RedisCommand("GET", key)).root.string
            session = try text.map { try JSONDecoder().decode(Session.self, from: Data($0.utf8)) }
            if let session { keep(session, at: key, \.known) } else { kept.withLock { $0.known[key] = nil } }
            session = session ?? kept.withLock { $0.local[key] }
        } catch is DecodingError {
            return nil
        } catch {
            session = kept.withLock { $0.known[key] ?? $0.local[key] }
        }
        // The session may have ended while Redis was asked.
        guard let session, session.until > Self.now, kept.withLock({ $0.ended[key] == nil }) else { return nil }
        return session
    }

    /// Ends a session. This process refuses it from now on. Other processes refuse it once Redis has deleted it. A failed deletion is tried
    /// again when a session ends, or when an ended session is used.
    func end(_ value: String) async {
        guard Self.isValue(value) else { return }
        let key = key(of: value)
        kept.withLock { kept in
            (kept.known[key], kept.local[key]) = (nil, nil)
            let now = Self.now
            if kept.ended.count >= Self.maximum {
                kept.ended = kept.ended.filter { $0.value > now }
                if kept.ended.count >= Self.maximum { (kept.ended, kept.undeleted) = ([:], []) }
            }
            kept.ended[key] = now + Self.lifetime
            kept.undeleted.insert(key)
        }
        await delete()
    }

    private func delete() async {
        for key in kept.withLock({ $0.undeleted }) {
            do {
                _ = try await fleet.client(for: key).call(RedisCommand("DEL", key))
                _ = kept.withLock { $0.undeleted.remove(key) }
            } catch {
                logger.warning(
                    "a session that has ended could not be deleted in Redis: \(error)",
                    metadata: ["event": "web_session_not_deleted"])
                return
            }
        }
    }

    private func keep(_ session: Session, at key: String, _ place: WritableKeyPath<Kept, [String: Session]> & Sendable)
    {
        kept.withLock { kept in
            guard kept.ended[key] == nil else { return }
            if kept[keyPath: place].count >= Self.maximum {
                kept[keyPath: place] = kept[keyPath: place].filter { $0.value.until > Self.now }
                if kept[keyPath: place].count >= Self.maximum { kept[keyPath: place].removeAll() }
            }
            kept[keyPath: place][key] = session
        }
    }

    private func key(of value: String) -> String { fleet.sharedKeys.session(Digest.sha256(value).hex) }
}

/// Limits guesses of passwords. No I/O.
///
/// An attempt is counted when it begins, so that simultaneous attempts count, too. A right password gives its attempt back. Attempts are
/// refused only for one name from one address. The other limits (from one address, for one name, and in all) make attempts slow but never
/// refuse them, because strangers could use them up and lock out a user. Known and unknown names are treated alike.
struct LoginLimits {
    enum Turn: Equatable {
        case check
        /// Check the password, and answer after a whole number of ``LoginLimits/pace``s.
        case checkSlowly
        /// Refuse attempts for this number of seconds.
        case refuse(Int)
    }

    /// The time that a slow attempt takes.
    static let pace = TimeAmount.seconds(1)
    /// Attempts per minute: for one name from one address, then from one address, for one name, and in all.
    private static let (login, address, name, all) = (5, 20, 30, 100)
    /// The maximum number of counted subjects.
    private static let maximum = 10_000

    struct Count {
        fileprivate var attempts = 0
        var since: NIODeadline
    }

    private(set) var counts: [Subject: Count] = [:]
    private var prunedAt = NIODeadline.distantPast

    enum Subject: Hashable {
        case login(name: String, address: String)
        case address(String)
        case name(String)
        case all
    }

    /// Counts an attempt, and returns how to answer it.
    /// - Parameter address: the sender's address, or its group of addresses.
    mutating func take(_ name: String, _ address: String, now: NIODeadline) -> Turn {
        if prunedAt == .distantPast || now - prunedAt >= .seconds(10) {
            counts = counts.filter { now - $0.value.since < .minutes(1) }
            prunedAt = now
        }
        let subjects = subjects(name, address)
        for subject in subjects {
            if let count = counts[subject], now - count.since >= .minutes(1) { counts[subject] = nil }
        }
        if let found = counts[subjects[0]], found.attempts >= Self.login {
            return .refuse(max(1, Int((.minutes(1) - (now - found.since)).nanoseconds / 1_000_000_000)))
        }
        let isSlow = zip(subjects.dropFirst(), [Self.address, Self.name, Self.all]).contains {
            (counts[$0]?.attempts ?? 0) >= $1
        }
        if counts.count >= Self.maximum {
            // Forgets the names with a single attempt first, known or not: a stranger can try many.
            counts = counts.filter { $0.value.attempts > 1 }
            if counts.count >= Self.maximum { counts.removeAll() }
        }
        for subject in subjects { counts[subject, default: Count(since: now)].attempts += 1 }
        return isSlow ? .checkSlowly : .check
    }

    /// Gives the attempt with a right password back.
    mutating func giveBack(_ name: String, _ address: String) {
        for subject in subjects(name, address) { counts[subject]?.attempts -= 1 }
    }

    /// Returns the subjects of an attempt, in the order of the limits.
    private func subjects(_ name: String, _ address: String) -> [Subject] {
        // Bounds the memory. No user has a longer name.
        let name = String(decoding: name.utf8.prefix(200), as: UTF8.self)
        return [.login(name: name, address: address), .address(address), .name(name), .all]
    }
}
