import COpenSSL
import Glibc
import Logging
import NIOCore
import NIOPosix
import PrintableText
import PushJob
import PushQueue
import Synchronization
import TLS

package enum Role: String, Sendable, CaseIterable {
    /// Can view.
    case viewer
    /// Can view and change.
    case `operator`
    /// Can enqueue jobs, and nothing else: a program with a token.
    case producer
}

/// The jobs that a producer may enqueue.
///
///     shop  producer  token$…  queue=default queue=bulk app=shop max_queue_length=100000
package struct ProducerRights: Sendable, Equatable {
    /// The names of the queues; at least one.
    var queues: [String] = []
    /// The names of the apps; empty for all.
    var apps: [String] = []
    /// The maximum length of a queue's list, beyond which this producer's jobs are refused; `nil` for no limit.
    var maximumQueueLength: Int?

    package init(queues: [String], apps: [String] = [], maximumQueueLength: Int? = nil) {
        (self.queues, self.apps, self.maximumQueueLength) = (queues, apps, maximumQueueLength)
    }

    /// The words of a user's line after the credential.
    package var words: String {
        (queues.map { "queue=\($0)" } + apps.map { "app=\($0)" }
            + (maximumQueueLength.map { ["max_queue_length=\($0)"] } ?? [])).joined(separator: " ")
    }

    /// Reads the words of a user's line after the credential.
    fileprivate init(_ words: ArraySlice<Substring>) throws(Users.Malformed) {
        for word in words {
            let parts = word.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
            let value = parts.count == 2 ? String(parts[1]) : ""
            switch parts[0] {
            case "queue" where (try? QueueKeys(queue: value)) != nil: queues.append(value)
            case "app" where !value.isEmpty: apps.append(value)
            case "max_queue_length":
                guard let number = Int(value), number >= 1 else {
                    throw Users.Malformed(description: "max_queue_length must be at least 1")
                }
                maximumQueueLength = number
            default:
                throw Users.Malformed(
                    description: "a producer can only have queue=NAME, app=NAME and max_queue_length=NUMBER")
            }
        }
        guard !queues.isEmpty else { throw Users.Malformed(description: "a producer needs queue=NAME") }
    }
}

/// The users of the dashboard, from a file with one line per user: a name, a role and a credential.
///
///     # name  role      credential
///     ada     operator  scrypt$16384$8$1$…$…
///     graph   viewer    token$9f86d081884c7d65…
///     shop    producer  token$60303ae22b998861… queue=default app=shop
///     grace   operator  proxy
///
/// `apns-worker web-user` generates the lines.
package struct Users: Sendable, Equatable {
    /// A line that cannot be used.
    package struct Malformed: Error, Equatable, CustomStringConvertible {
        package let description: String
    }

    struct User: Sendable, Equatable {
        let name: String
        let role: Role
        let credential: Credential
        let producer: ProducerRights?
        /// The SHA-256 of the line, in hex. When it changes, the user's sessions end.
        let fingerprint: String
    }

    enum Credential: Sendable, Equatable {
        case password(PasswordHash)
        /// The login of a trusted proxy, which names the user in each request.
        case proxy
        /// The SHA-256 of a token for programs. Tokens are random, so the hash need not be slow.
        case token(hash: [UInt8])
    }

    private let users: [User]

    /// No users: no visitor is admitted.
    static let none = Users([])

    private init(_ users: [User]) { self.users = users }

    /// Reads the contents of a file.
    /// - Throws: ``Malformed`` for the first line that cannot be used, or if there is no user.
    package init(_ text: String) throws(Malformed) {
        let (users, problems) = Self.usable(text)
        if let problem = problems.first { throw problem }
        self = users
    }

    /// Returns the users of all usable lines, and the problems of the other lines.
    static func usable(_ text: String) -> (users: Users, problems: [Malformed]) {
        var users: [User] = []
        var problems: [Malformed] = []
        for (number, line) in text.split(omittingEmptySubsequences: false, whereSeparator: \.isNewline).enumerated() {
            do throws(Malformed) {
                guard let user = try User(line) else { continue }
                guard !users.contains(where: { $0.name == user.name && $0.isProgram == user.isProgram }) else {
                    throw Malformed(description: "duplicate user \(user.name)")
                }
                users.append(user)
            } catch {
                problems.append(Malformed(description: "line \(number + 1): \(error)"))
            }
        }
        if users.isEmpty, problems.isEmpty { problems = [Malformed(description: "the file has no users")] }
        return (Users(users), problems)
    }

    var isEmpty: Bool { users.isEmpty }

    /// Returns the user with a name who is not a program.
    subscript(name: String) -> User? { users.first { $0.name == name && !$0.isProgram } }

    func user(token: String) -> User? {
        let hash = Digest.sha256(token)
        return users.first { user in
            guard case .token(let known) = user.credential else { return false }
            return Digest.isEqual(known, hash)
        }
    }
}

extension Users.User {
    /// Reads a line; returns nil for an empty line or a comment.
    fileprivate init?(_ line: Substring) throws(Users.Malformed) {
        let words = line.split(whereSeparator: \.isWhitespace)
        guard let first = words.first, !first.hasPrefix("#") else { return nil }
        guard words.count >= 3 else {
            throw Users.Malformed(description: "a user is a name, a role and a credential")
        }
        guard let role = Role(rawValue: String(words[1])) else {
            throw Users.Malformed(description: "the second word is not a role; roles are viewer, operator and producer")
        }
        guard role == .producer || words.count == 3 else {
            throw Users.Malformed(description: "only a producer has words after the credential")
        }
        guard let credential = Users.Credential(words[2]) else {
            throw Users.Malformed(description: "the credential was not made by `apns-worker web-user`")
        }
        guard role != .producer || credential.isToken else {
            throw Users.Malformed(description: "a producer has a token, not a password")
        }
        self.init(
            name: String(first), role: role, credential: credential,
            producer: role == .producer ? try ProducerRights(words[3...]) : nil,
            fingerprint: Digest.sha256(words.joined(separator: " ")).hex)
    }

    fileprivate var isProgram: Bool { credential.isToken }
}

/// Checks passwords one after another, on a thread that answers no requests. A check takes about 50 ms, and strangers can request many.
actor PasswordChecks {
    private struct Waiting {
        let group: String
        let continuation: CheckedContinuation<Bool, Never>
    }

    /// The maximum number of waiting checks.
    private static let maximum = 64

    private var isBusy = false
    private var waiting: [Waiting] = []

    /// - Parameters:
    ///   - user: nil if no user has the name. The check takes as long as any other.
    ///   - group: the sender. Senders with fewer waiting checks are served first.
    /// - Returns: nil if too many checks wait.
    func isRight(_ password: String, of user: Users.User?, from group: String) async throws -> Bool? {
        guard await hasTurn(group) else { return nil }
        defer { pass() }
        try Task.checkCancellation()
        return try await NIOThreadPool.singleton.runIfActive {
            guard let user, case .password(let hash) = user.credential else {
                _ = PasswordHash.decoy.matches(password)
                return false
            }
            return hash.matches(password)
        }
    }

    private func hasTurn(_ group: String) async -> Bool {
        guard isBusy else {
            isBusy = true
            return true
        }
        if waiting.count >= Self.maximum {
            // The sender with the most waiting checks loses one check. It may be this sender.
            let largest = sizes.max { $0.value < $1.value }
            guard let largest, largest.key != group, largest.value > (sizes[group] ?? 0) + 1,
                let index = waiting.lastIndex(where: { $0.group == largest.key })
            else { return false }
            waiting.remove(at: index).continuation.resume(returning: false)
        }
        return await withCheckedContinuation { waiting.append(Waiting(group: group, continuation: $0)) }
    }

    /// Lets the next check begin.
    private func pass() {
        let sizes = sizes
        guard
            let next = waiting.indices.min(by: {
                sizes[waiting[$0].group, default: 0] < sizes[waiting[$1].group, default: 0]
            })
        else {
            isBusy = false
            return
        }
        waiting.remove(at: next).continuation.resume(returning: true)
    }

    /// The number of waiting checks of each sender.
    private var sizes: [String: Int] { waiting.reduce(into: [:]) { $0[$1.group, default: 0] += 1 } }
}

extension Users.Credential {
    fileprivate var isToken: Bool { if case .token = self { true } else { false } }

    fileprivate init?(_ text: Substring) {
        if text == NewCredential.proxy {
            self = .proxy
            return
        }
        let parts = text.split(separator: "$", omittingEmptySubsequences: false)
        switch parts.first {
        case "token":
            guard parts.count == 2, let hash = Digest.bytes(hex: parts[1]), hash.count == 32 else { return nil }
            self = .token(hash: hash)
        case "scrypt":
            guard let hash = PasswordHash(parts.dropFirst()) else { return nil }
            self = .password(hash)
        default: return nil
        }
    }
}

/// Generates credentials for a file of ``Users``.
package enum NewCredential {
    /// The credential of a user whom a proxy logs in.
    package static let proxy = "proxy"

    package static func password(_ password: String) -> String {
        let hash = PasswordHash(password)
        return "scrypt$\(hash.cost)$8$1$\(hash.salt.hex)$\(hash.key.hex)"
    }

    /// Returns a random token for programs, and its credential.
    package static func token() -> (token: String, credential: String) {
        let token = Digest.random(24).hex
        return (token, "token$\(Digest.sha256(token).hex)")
    }
}

/// An scrypt hash of a password (RFC 7914), with block size 8 and parallelism 1.
struct PasswordHash: Sendable, Equatable {
    fileprivate let cost: UInt64
    fileprivate let salt: [UInt8]
    fileprivate let key: [UInt8]

    fileprivate static let decoy = PasswordHash(cost: 16_384, salt: Digest.random(16), key: Digest.random(32))

    private init(cost: UInt64, salt: [UInt8], key: [UInt8]) { (self.cost, self.salt, self.key) = (cost, salt, key) }

    fileprivate init(_ password: String) {
        let salt = Digest.random(16)
        self.init(cost: 16_384, salt: salt, key: Self.derive(password, salt, 16_384) ?? [])
    }

    /// - Parameter parts: cost, block size, parallelism, salt and key.
    fileprivate init?(_ parts: ArraySlice<Substring>) {
        let parts = Array(parts)
        guard parts.count == 5, let cost = UInt64(parts[0]), (1024...1 << 20).contains(cost), cost & (cost - 1) == 0,
            parts[1] == "8", parts[2] == "1", let salt = Digest.bytes(hex: parts[3]), salt.count >= 8,
            let key = Digest.bytes(hex: parts[4]), key.count == 32
        else { return nil }
        self.init(cost: cost, salt: salt, key: key)
    }

    fileprivate func matches(_ password: String) -> Bool {
        Self.derive(password, salt, cost).map { Digest.isEqual($0, key) } ?? false
    }

    private static func derive(_ password: String, _ salt: [UInt8], _ cost: UInt64) -> [UInt8]? {
        var key = [UInt8](repeating: 0, count: 32)
        // scrypt needs 128 bytes per unit of cost and block size; the limit leaves a margin.
        let result = EVP_PBE_scrypt(
            password, password.utf8.count, salt, salt.count, cost, 8, 1, 2048 * cost + (1 << 20), &key, key.count)
        return result == 1 ? key : nil
    }
}

/// The file of users. It is read again at most once per second, through symbolic links.
///
/// A user whose line becomes unusable loses access at once. If the whole file is missing or has no users, the previous users keep their
/// access for a minute, because some programs delete a file before they replace it.
package final class UserFile: Sendable {
    /// The users and problems that follow from each reading of the file. No I/O.
    struct State {
        /// The time until the previous users lose their access.
        static let grace = TimeAmount.minutes(1)

        let path: String
        private(set) var users = Users.none
        /// The problems of the file, as sentences.
        private(set) var problems: [String] = []
        /// A warning about the rights of the file.
        private(set) var warning: String?
        private var usableAt = NIODeadline.distantPast
        fileprivate var lookedAt = NIODeadline.distantPast

        init(path: String) { self.path = path }

        mutating func read(_ result: Result<[UInt8], SecretSource.Unreadable>, warning: String?, now: NIODeadline) {
            self.warning = warning
            let unusable: String
            switch result {
            case .success(let contents):
                let (users, problems) = Users.usable(String(decoding: contents, as: UTF8.self))
                guard users.isEmpty else {
                    self.users = users
                    usableAt = now
                    self.problems = problems.map { "\(path), \($0); this user has no access" }
                    return
                }
                unusable = "\(path), " + problems.map(\.description).joined(separator: "; ")
            case .failure(let error): unusable = error.description
            }
            let hasEnded = now - usableAt > Self.grace
            if hasEnded { users = .none }
            problems = [
                "\(unusable); "
                    + (hasEnded ? "no user has access" : "the previous users keep their access for a minute")
            ]
        }
    }

    private let logger: Logger
    private let state: Mutex<State>

    /// Reads the file.
    /// - Throws: ``Users/Malformed``, also if the file cannot be read.
    package init(_ path: String, logger: Logger) throws(Users.Malformed) {
        self.logger = logger
        state = Mutex(State(path: path))
        do {
            _ = try Users(String(decoding: try SecretSource.file(path).read(), as: UTF8.self))
        } catch let error as Users.Malformed {
            throw Users.Malformed(description: "\(path), \(error)")
        } catch {
            throw Users.Malformed(description: "\(error)")
        }
        look()
    }

    /// Returns a warning if users other than its owner and group can read the file, or if its group can change it; nil otherwise.
    private static func warning(_ path: String) -> String? {
        var facts = stat()
        guard stat(path, &facts) == 0, facts.st_mode & 0o027 != 0 else { return nil }
        let mode = SecretSource.octal(facts.st_mode & 0o777)
        return "\(path) can be read or changed by users who need no access (mode \(mode)): chmod 640 \(path)"
    }

    /// Replaces, adds or removes the line of a user. A reader finds either the old or the new file, and other lines remain as they are. A
    /// new file is private (mode 0600). An existing file keeps its owner and mode.
    /// - Parameters:
    ///   - isToken: true for the user's token, which has its own line.
    ///   - line: the new line; nil to remove the old one.
    /// - Returns: true if the user had a line.
    /// - Throws: ``Users/Malformed`` if the file cannot be read or written.
    package static func replace(
        _ name: String, isToken: Bool, with line: String?, in path: String
    ) throws(Users.Malformed) -> Bool {
        func failed(_ what: String) -> Users.Malformed {
            Users.Malformed(description: "\(path) cannot be \(what): \(String(cString: strerror(errno)))")
        }
        var lines: [Substring] = []
        var (mode, owner, group) = (mode_t(0o600), geteuid(), getegid())
        // The target of a symbolic link is replaced, not the link.
        var target = path
        let real = realpath(path, nil)
        defer { free(real) }
        if let real { target = String(cString: real) } else if errno != ENOENT { throw failed("read") }
        // Two commands at the same time must not lose each other's changes. The lock is on the folder, because the file itself is replaced.
        let folder = target.lastIndex(of: "/").map { String(target[...$0]) } ?? "."
        let lock = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        defer { close(lock) }
        guard lock >= 0, flock(lock, LOCK_EX) == 0 else { throw failed("locked") }
        if access(target, F_OK) == 0 {
            var facts = stat()
            guard stat(target, &facts) == 0 else { throw failed("read") }
            (mode, owner, group) = (facts.st_mode & 0o777, facts.st_uid, facts.st_gid)
            if facts.st_size > 0 {
                do throws(SecretSource.Unreadable) {
                    lines = String(decoding: try SecretSource.file(target).read(), as: UTF8.self)
                        .split(omittingEmptySubsequences: false, whereSeparator: \.isNewline)
                } catch {
                    throw Users.Malformed(description: error.description)
                }
            }
        }
        let old = lines.indices.filter { index in
            let words = lines[index].split(whereSeparator: \.isWhitespace)
            return words.count >= 3 && words[0] == name && words[2].hasPrefix("token$") == isToken
        }
        while lines.last?.isEmpty == true { lines.removeLast() }
        if let line {
            if let first = old.first { lines[first] = Substring(line) } else { lines.append(Substring(line)) }
        }
        for index in old.reversed() where line == nil || index != old.first { lines.remove(at: index) }
        guard !old.isEmpty || line != nil else { return false }
        var template = Array("\(target).XXXXXX".utf8CString)
        let descriptor = mkstemp(&template)
        guard descriptor >= 0 else { throw failed("written") }
        let bytes = Array(lines.map { $0 + "\n" }.joined().utf8)
        let isWritten =
            write(descriptor, bytes, bytes.count) == bytes.count && fchown(descriptor, owner, group) == 0
            && fchmod(descriptor, mode) == 0 && fsync(descriptor) == 0
        let error = errno
        close(descriptor)
        if isWritten, rename(template, target) == 0 { return !old.isEmpty }
        if !isWritten { errno = error }
        let failure = failed("written")
        unlink(template)
        throw failure
    }

    var current: Users {
        look()
        return state.withLock { $0.users }
    }

    var problems: [String] {
        look()
        return state.withLock { $0.problems + ($0.warning.map { [$0] } ?? []) }
    }

    /// Reads the file if the last reading is more than a second old, and logs each problem once.
    package func look() {
        state.withLock { state in
            let now = NIODeadline.now()
            guard state.lookedAt == .distantPast || now - state.lookedAt > .seconds(1) else { return }
            state.lookedAt = now
            let path = state.path
            let source = SecretSource.file(path)
            let read = Result { () throws(SecretSource.Unreadable) in try source.read() }
            // If two readings differ, the file is being written. It is read again a second later.
            guard read == Result(catching: { () throws(SecretSource.Unreadable) in try source.read() }) else { return }
            let (before, warnedBefore) = (state.problems, state.warning)
            state.read(read, warning: Self.warning(path), now: now)
            let problems = state.problems
            if let warning = state.warning, warning != warnedBefore {
                logger.warning("--users: \(warning)", metadata: ["event": "web_users_readable"])
            }
            for problem in problems where !before.contains(problem) {
                logger.error("--users: \(problem)", metadata: ["event": "web_users_unusable"])
            }
            if problems.isEmpty, !before.isEmpty {
                logger.notice("--users: \(path) is usable again", metadata: ["event": "web_users_usable"])
            }
        }
    }
}

/// Hashes, random bytes and their hex representation.
enum Digest {
    static func random(_ count: Int) -> [UInt8] {
        var generator = SystemRandomNumberGenerator()
        return (0..<count).map { _ in .random(in: .min ... .max, using: &generator) }
    }

    static func sha256(_ text: String) -> [UInt8] {
        var digest = [UInt8](repeating: 0, count: 32)
        let bytes = Array(text.utf8)
        _ = SHA256(bytes, bytes.count, &digest)
        return digest
    }

    static func hmac(key: [UInt8], _ text: String) -> [UInt8] {
        var (digest, length) = ([UInt8](repeating: 0, count: 32), UInt32(0))
        let bytes = Array(text.utf8)
        _ = HMAC(EVP_sha256(), key, Int32(key.count), bytes, bytes.count, &digest, &length)
        return digest
    }

    /// Compares in constant time.
    static func isEqual(_ left: [UInt8], _ right: [UInt8]) -> Bool {
        left.count == right.count && CRYPTO_memcmp(left, right, left.count) == 0
    }

    static func bytes(hex: some StringProtocol) -> [UInt8]? {
        let digits = hex.utf8.compactMap(JSONText.hexValue)
        guard digits.count == hex.utf8.count, digits.count.isMultiple(of: 2) else { return nil }
        return stride(from: 0, to: digits.count, by: 2).map { digits[$0] << 4 | digits[$0 + 1] }
    }
}
