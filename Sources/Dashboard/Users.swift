import COpenSSL
import FoundationEssentials
import NIOCore
import NIOPosix
import PushJob
import Synchronization

/// The rights of a visitor.
package enum Role: String, Sendable, CaseIterable, Comparable {
    /// Can view.
    case viewer
    /// Can view and change.
    case `operator`

    package static func < (left: Role, right: Role) -> Bool { left == .viewer && right == .operator }
}

/// The users of the dashboard, from a file with one line per user: a name, a role and a credential.
///
///     # name  role      credential
///     ada     operator  scrypt$16384$8$1$…$…
///     graph   viewer    token$9f86d081884c7d65…
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
    }

    enum Credential: Sendable, Equatable {
        case password(PasswordHash)
        /// The SHA-256 of a token for programs. Tokens are random, so the hash need not be slow.
        case token(hash: [UInt8])
    }

    private let users: [User]
    /// Signs sessions. It depends on the file's contents, so changing a password ends all sessions.
    let sessionKey: [UInt8]

    /// Parses the contents of a file.
    package init(_ text: String) throws(Malformed) {
        var users: [User] = []
        for (number, line) in text.split(separator: "\n", omittingEmptySubsequences: false).enumerated() {
            let words = line.split(whereSeparator: \.isWhitespace)
            guard let first = words.first, !first.hasPrefix("#") else { continue }
            let problem = { (text: String) in Malformed(description: "line \(number + 1): \(text)") }
            guard words.count == 3 else { throw problem("a user is a name, a role and a credential") }
            guard let role = Role(rawValue: String(words[1])) else {
                throw problem("\(words[1]) is not a role; roles are viewer and operator")
            }
            guard let credential = Credential(words[2]) else {
                throw problem("the credential was not made by `apns-worker web-user`")
            }
            let name = String(first)
            guard !users.contains(where: { $0.name == name && $0.credential.isToken == credential.isToken }) else {
                throw problem("duplicate user \(name)")
            }
            users.append(User(name: name, role: role, credential: credential))
        }
        guard !users.isEmpty else { throw Malformed(description: "the file has no users") }
        self.users = users
        sessionKey = Digest.hmac(key: Digest.sha256(text), "apns-worker dashboard session")
    }

    /// Returns the role of a user who has logged in with a password.
    func role(of name: String) -> Role? { users.first { $0.name == name && !$0.credential.isToken }?.role }

    /// Returns the user of a token.
    func user(token: String) -> User? {
        let hash = Digest.sha256(token)
        return users.first { user in
            guard case .token(let known) = user.credential else { return false }
            return Digest.isEqual(known, hash)
        }
    }

    /// Checks a password on a separate thread, because that takes about 50 ms.
    func user(_ name: String, password: String) async -> User? {
        let user = users.first { $0.name == name && !$0.credential.isToken }
        // An unknown name must take as long as a known one.
        var hash = PasswordHash.decoy
        if let user, case .password(let known) = user.credential { hash = known }
        let isRight = try? await NIOThreadPool.singleton.runIfActive { [hash] in hash.matches(password) }
        return isRight == true ? user : nil
    }
}

extension Users.Credential {
    fileprivate init?(_ text: Substring) {
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

    fileprivate var isToken: Bool { if case .token = self { true } else { false } }

    /// Returns the credential for a new password.
    package static func line(password: String) -> String {
        let hash = PasswordHash(password)
        return "scrypt$\(hash.cost)$8$1$\(Digest.hex(hash.salt))$\(Digest.hex(hash.key))"
    }

    /// Returns a new token and its credential.
    package static func newToken() -> (token: String, line: String) {
        let token = Digest.hex(Digest.random(24))
        return (token, "token$\(Digest.hex(Digest.sha256(token)))")
    }
}

/// Generates credentials for a file of ``Users``.
package enum NewCredential {
    /// Returns the credential for a password.
    package static func password(_ password: String) -> String { Users.Credential.line(password: password) }

    /// Returns a random token for programs, and its credential.
    package static func token() -> (token: String, credential: String) {
        let (token, line) = Users.Credential.newToken()
        return (token, line)
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

/// The file of users, which is read again when it changes.
package final class UserFile: Sendable {
    private struct State {
        var users: Users
        var identity: Identity?
        var checkedAt: NIODeadline
    }

    private struct Identity: Equatable {
        let modified: Date?
        let size: UInt64?
    }

    private let path: String
    private let state: Mutex<State>

    /// Reads the file.
    /// - Throws: ``Users/Malformed``, also if the file cannot be read.
    package init(_ path: String) throws(Users.Malformed) {
        self.path = path
        let identity = Self.identity(path)
        state = Mutex(State(users: try Self.read(path), identity: identity, checkedAt: .now()))
    }

    /// The users; the previous ones while the file is malformed.
    var current: Users {
        state.withLock { state in
            guard NIODeadline.now() - state.checkedAt > .seconds(1) else { return state.users }
            state.checkedAt = .now()
            let identity = Self.identity(path)
            if identity != state.identity, let users = try? Self.read(path) {
                state.users = users
                state.identity = identity
            }
            return state.users
        }
    }

    private static func identity(_ path: String) -> Identity? {
        guard let attributes = try? FileManager.default.attributesOfItem(atPath: path) else { return nil }
        return Identity(
            modified: attributes[.modificationDate] as? Date, size: attributes[.size] as? UInt64)
    }

    private static func read(_ path: String) throws(Users.Malformed) -> Users {
        guard let data = FileManager.default.contents(atPath: path) else {
            throw Users.Malformed(description: "\(path) cannot be read")
        }
        do {
            return try Users(String(decoding: data, as: UTF8.self))
        } catch {
            throw Users.Malformed(description: "\(path), \(error)")
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

    static func hex(_ bytes: [UInt8]) -> String {
        bytes.map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
    }

    static func bytes(hex: Substring) -> [UInt8]? {
        let digits = hex.utf8.compactMap(JSONText.hexValue)
        guard digits.count == hex.utf8.count, digits.count.isMultiple(of: 2) else { return nil }
        return stride(from: 0, to: digits.count, by: 2).map { digits[$0] << 4 | digits[$0 + 1] }
    }
}
