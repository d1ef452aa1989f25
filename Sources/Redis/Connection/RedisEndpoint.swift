import PrintableText
import TLS

/// The location of a Redis server, and the access to it.
///
/// Its descriptions, reflections included, never show the password.
public struct RedisEndpoint: Sendable, Equatable {
    public var location: RedisLocation
    /// The login, the database and the use of TLS.
    public var access: RedisAccess

    public init(location: RedisLocation) { self.init(location: location, access: RedisAccess()) }

    init(location: RedisLocation, access: RedisAccess) {
        self.location = location
        self.access = access
    }

    /// Parses `[user[:password]@]host[:port][/db]`.
    init(network rest: Substring, usesTLS: Bool) throws(RedisURLError) {
        let (place, query) = try RedisURLText.splitQuery(rest, allowing: ["password_file"])
        let (authority, path) = place.splitOnce(at: "/") ?? (place, "")
        var (access, server) = try RedisURLText.splitCredentials(authority, passwordFile: query["password_file"])
        let location = try RedisLocation(server)
        if !path.isEmpty { access.database = try RedisURLText.database(path) }
        access.usesTLS = usesTLS
        self.init(location: location, access: access)
    }

    /// Parses `[user:password@]/path[?db=n]`.
    init(socket rest: Substring) throws(RedisURLError) {
        let (place, query) = try RedisURLText.splitQuery(rest, allowing: ["db", "password_file"])
        guard let slash = place.firstIndex(of: "/") else { throw .socketPath }
        var (access, host) = try RedisURLText.splitCredentials(place[..<slash], passwordFile: query["password_file"])
        guard host.isEmpty, place[slash...].count > 1 else { throw .socketPath }
        let path = try RedisURLText.percentDecoded(place[slash...])
        if let database = query["db"] { access.database = try RedisURLText.database(database) }
        self.init(location: .unixSocket(path), access: access)
    }

    /// The common notation: `host:port`, `[::1]:6379` or the socket's path.
    public var address: String { location.address }
}

extension RedisEndpoint: Redacted {
    /// The URL without its password.
    public var description: String {
        let scheme: String
        var path = ""
        var query: [String] = []
        switch location {
        case .host:
            scheme = access.usesTLS ? "rediss" : "redis"
            if access.database != 0 { path = "/\(access.database)" }
        case .unixSocket:
            scheme = "unix"
            if access.database != 0 { query.append("db=\(access.database)") }
        }
        if let passwordFile = access.passwordFile { query.append("password_file=\(PathText.shown(passwordFile))") }
        return "\(scheme)://\(access.shownCredentials)\(address)\(path)"
            + (query.isEmpty ? "" : "?" + query.joined(separator: "&"))
    }
}

extension RedisEndpoint {
    private static let maximumPasswordSize = 4096

    /// Returns the endpoint with the current password from its file.
    ///
    /// - Throws: `.connect`, naming the file.
    func withPasswordRead() throws(RedisError) -> RedisEndpoint {
        guard let passwordFile = access.passwordFile else { return self }
        var bytes: [UInt8]
        do throws(SecretSource.Unreadable) {
            bytes = try SecretSource.file(passwordFile).read()
        } catch {
            throw .connect(address: address, reason: "no password: \(error)")
        }
        // Editors and `echo` end files with a newline; passwords do not contain one.
        if bytes.last == UInt8(ascii: "\n") { bytes.removeLast() }
        if bytes.last == UInt8(ascii: "\r") { bytes.removeLast() }
        guard bytes.count <= Self.maximumPasswordSize, let text = String(validating: bytes, as: UTF8.self) else {
            throw .connect(
                address: address,
                reason: "the password file \(passwordFile) must hold UTF-8 text of at most "
                    + "\(Self.maximumPasswordSize) bytes")
        }
        var endpoint = self
        endpoint.access.password = text
        return endpoint
    }
}
