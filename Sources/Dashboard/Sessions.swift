import FoundationEssentials
import NIOCore
import Operations
import PushJob
import PushQueue
import Redis
import Synchronization

/// The sessions of users who have logged in, in Redis, so that all dashboards of a Redis share them, a restart keeps
/// them, and one that has ended is refused everywhere.
///
/// A session is a random value that only the browser has; Redis has its SHA-256. While Redis is unavailable, a process
/// accepts those that it has seen.
final class Sessions: Sendable {
    /// What is known of a session.
    struct Session: Codable, Sendable, Equatable {
        /// The user.
        let name: String
        /// The user's ``Users/User/fingerprint`` at the login.
        let user: String
        /// The end, in seconds since 1970.
        let until: Int64
    }

    /// The lifetime of a session, in seconds.
    static let lifetime: Int64 = 12 * 3600
    /// The number of sessions that are kept for the time that Redis is unavailable.
    private static let maximum = 10_000

    private struct Kept {
        var known: [String: Session] = [:]
        /// Sessions that a user ended, and that Redis may still have.
        var ended: [String: Session] = [:]
    }

    private let fleet: Fleet
    private let kept = Mutex(Kept())

    init(_ fleet: Fleet) { self.fleet = fleet }

    /// Returns a random value for a new session.
    static func value() -> String { Digest.hex(Digest.random(32)) }

    /// Returns true for the form of ``value()``.
    static func isValue(_ text: String) -> Bool { Digest.bytes(hex: text)?.count == 32 }

    /// Begins a session.
    /// - Returns: its value, for the browser.
    func begin(for user: Users.User) async throws -> String {
        let value = Self.value()
        let session = Session(name: user.name, user: user.fingerprint, until: Clock.seconds + Self.lifetime)
        let key = key(of: value)
        var command = RedisCommand("SET", key, try JSONLine.text(session))
        command.append("EX")
        command.append("\(Self.lifetime)")
        _ = try await fleet.client(for: key).call(command)
        keep(session, at: key)
        return value
    }

    /// Returns a session that has not ended.
    /// - Throws: `RedisError` if Redis is unavailable and this process has not seen the session.
    func find(_ value: String) async throws -> Session? {
        guard Self.isValue(value) else { return nil }
        let key = key(of: value)
        if kept.withLock({ $0.ended[key] != nil }) {
            try await end(value)
            return nil
        }
        var session: Session?
        do {
            let text = try await fleet.client(for: key).call(RedisCommand("GET", key)).root.string
            session = try text.map { try JSONDecoder().decode(Session.self, from: Data($0.utf8)) }
            if let session { keep(session, at: key) } else { kept.withLock { $0.known[key] = nil } }
        } catch is DecodingError {
            return nil
        } catch {
            session = kept.withLock { $0.known[key] }
            if session == nil { throw error }
        }
        return session.flatMap { $0.until > Clock.seconds ? $0 : nil }
    }

    /// Ends a session. If Redis is unavailable, this process refuses it all the same, and tries again when it is used.
    func end(_ value: String) async throws {
        guard Self.isValue(value) else { return }
        let key = key(of: value)
        kept.withLock { kept in
            if let session = kept.known.removeValue(forKey: key) { kept.ended[key] = session }
            kept.ended = kept.ended.filter { $0.value.until > Clock.seconds }
        }
        _ = try await fleet.client(for: key).call(RedisCommand("DEL", key))
        kept.withLock { $0.ended[key] = nil }
    }

    private func keep(_ session: Session, at key: String) {
        kept.withLock { kept in
            if kept.known.count >= Self.maximum {
                kept.known = kept.known.filter { $0.value.until > Clock.seconds }
                if kept.known.count >= Self.maximum { kept.known.removeAll() }
            }
            kept.known[key] = session
        }
    }

    private func key(of value: String) -> String { fleet.sharedKeys.session(Digest.hex(Digest.sha256(value))) }
}

/// Limits the guesses of passwords. No I/O.
///
/// An attempt is counted when it begins and given back if the password was right, so attempts made at once count like
/// others. Only attempts for one name from one address are refused. What strangers can fill (the attempts from one
/// address, which may be a proxy's, for one name, and in all) makes attempts slow: each takes ``pace``, and unknown names
/// are not checked, which looks the same.
struct LoginLimits {
    enum Turn: Equatable {
        case check
        /// Check the password, or do not if the name is unknown, and answer after ``LoginLimits/pace``.
        case checkSlowly
        /// Refuse for some seconds.
        case refuse(Int)
    }

    /// The time of a slow attempt.
    static let pace = TimeAmount.seconds(1)
    /// Attempts per minute: for one name from one address, then from one address, for one name, and in all.
    private static let (login, address, name, all) = (5, 20, 30, 100)

    private struct Count {
        var attempts = 0
        var since: NIODeadline
    }

    private var counts: [Subject: Count] = [:]
    private var prunedAt = NIODeadline.distantPast

    private enum Subject: Hashable {
        case login(name: String, address: String)
        case address(String)
        case name(String)
        case all
    }

    /// Takes a turn for an attempt.
    /// - Parameters:
    ///   - address: the sender, or the group of addresses that belong to one.
    ///   - isKnown: true if there is a user of this name.
    mutating func take(_ name: String, _ address: String, isKnown: Bool, now: NIODeadline) -> Turn {
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
        // Names that nobody has are not kept in any number.
        if isSlow, !isKnown, counts.count > 10_000 { return .checkSlowly }
        for subject in subjects { counts[subject, default: Count(since: now)].attempts += 1 }
        return isSlow ? .checkSlowly : .check
    }

    /// Gives the turn of a right password back.
    mutating func giveBack(_ name: String, _ address: String) {
        for subject in subjects(name, address) { counts[subject]?.attempts -= 1 }
    }

    /// The number of subjects that are counted.
    var count: Int { counts.count }

    /// What an attempt counts for, in the order of the limits.
    private func subjects(_ name: String, _ address: String) -> [Subject] {
        // No user has a longer name.
        let name = String(decoding: name.utf8.prefix(200), as: UTF8.self)
        return [.login(name: name, address: address), .address(address), .name(name), .all]
    }
}
