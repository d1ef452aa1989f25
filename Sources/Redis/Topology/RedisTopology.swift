/// The servers of a Redis URL.
///
/// Its descriptions, reflections included, never show a password.
public enum RedisTopology: Sendable, Equatable {
    /// One server.
    case single(RedisEndpoint)
    /// A master whose address the Sentinels know.
    case sentinel(Sentinel)
    /// The nodes of a Cluster; each key belongs to one of them.
    case cluster(Cluster)

    var isCluster: Bool { if case .cluster = self { true } else { false } }

    /// The Sentinels to ask for a master, and the access to it.
    public struct Sentinel: Sendable, Equatable {
        /// The Sentinels to ask first; they name further Sentinels.
        public var sentinels: [RedisLocation]
        /// The master's name, as configured in the Sentinels.
        public var master: String
        public var access: RedisAccess
        public var sentinelAccess: RedisAccess

        init(
            sentinels: [RedisLocation], master: String, access: RedisAccess = RedisAccess(),
            sentinelAccess: RedisAccess = RedisAccess()
        ) {
            self.sentinels = sentinels
            self.master = master
            self.access = access
            self.sentinelAccess = sentinelAccess
            self.sentinelAccess.isOfSentinels = true
        }
    }

    /// The nodes to ask for the owner of a slot, and the access to them.
    public struct Cluster: Sendable, Equatable {
        /// The nodes to ask first; they name further nodes.
        public var nodes: [RedisLocation]
        /// The access to all nodes; the database is 0.
        public var access = RedisAccess()
    }

    /// Parses a URL; user, password and path can be percent-encoded:
    /// - `redis://[user[:password]@]host[:port][/db]`
    /// - `unix://[user:password@]/path[?db=n]`, also as `redis+unix:`
    /// - `redis+sentinel://[user:password@]host[:26379],…[/db]?master=name[&sentinel_user=…][&sentinel_password=…]`
    /// - `redis+cluster://[user:password@]host[:6379],…`
    ///
    /// `rediss` instead of `redis` uses TLS to all servers. `password_file` and `sentinel_password_file` replace the passwords.
    ///
    /// - Throws: `RedisURLError`, which never repeats a part of the URL.
    public init(url: String) throws(RedisURLError) {
        guard let (scheme, rest) = url.splitOnce(at: "://") else { throw .scheme }
        switch scheme.lowercased() {
        case "redis": self = .single(try RedisEndpoint(network: rest, usesTLS: false))
        case "rediss": self = .single(try RedisEndpoint(network: rest, usesTLS: true))
        case "unix", "redis+unix": self = .single(try RedisEndpoint(socket: rest))
        case "redis+sentinel": self = .sentinel(try Sentinel(rest, usesTLS: false))
        case "rediss+sentinel": self = .sentinel(try Sentinel(rest, usesTLS: true))
        case "redis+cluster": self = .cluster(try Cluster(rest, usesTLS: false))
        case "rediss+cluster": self = .cluster(try Cluster(rest, usesTLS: true))
        default: throw .scheme
        }
    }

    public var usesTLS: Bool {
        switch self {
        case .single(let endpoint): endpoint.access.usesTLS
        case .sentinel(let sentinel): sentinel.access.usesTLS
        case .cluster(let cluster): cluster.access.usesTLS
        }
    }

    /// The addresses of the server, or of the servers to ask.
    public var address: String {
        switch self {
        case .single(let endpoint): endpoint.address
        case .sentinel(let sentinel): sentinel.sentinels.map(\.address).joined(separator: ",")
        case .cluster(let cluster): cluster.nodes.map(\.address).joined(separator: ",")
        }
    }
}

extension RedisTopology.Sentinel {
    fileprivate init(_ rest: Substring, usesTLS: Bool) throws(RedisURLError) {
        let (place, query) = try RedisURLText.splitQuery(
            rest,
            allowing: ["master", "password_file", "sentinel_user", "sentinel_password", "sentinel_password_file"])
        let (authority, path) = place.splitOnce(at: "/") ?? (place, "")
        var (access, servers) = try RedisURLText.splitCredentials(authority, passwordFile: query["password_file"])
        let sentinels = try RedisLocation.list(servers, defaultPort: 26379)
        guard let master = query["master"] else { throw .sentinelMaster }
        let (password, file) = (query["sentinel_password"], query["sentinel_password_file"])
        guard password == nil || file == nil else { throw .passwordTwice }
        guard query["sentinel_user"] == nil || password != nil || file != nil else { throw .sentinelUser }
        if !path.isEmpty { access.database = try RedisURLText.database(path) }
        access.usesTLS = usesTLS
        self.init(
            sentinels: sentinels, master: master, access: access,
            sentinelAccess: RedisAccess(
                user: query["sentinel_user"], password: password, passwordFile: file, usesTLS: usesTLS))
    }
}

extension RedisTopology.Cluster {
    fileprivate init(_ rest: Substring, usesTLS: Bool) throws(RedisURLError) {
        let (place, query) = try RedisURLText.splitQuery(rest, allowing: ["password_file"])
        let (authority, path) = place.splitOnce(at: "/") ?? (place, "")
        var (access, servers) = try RedisURLText.splitCredentials(authority, passwordFile: query["password_file"])
        guard path.isEmpty || path == "0" else { throw .clusterDatabase }
        access.usesTLS = usesTLS
        self.init(nodes: try RedisLocation.list(servers, defaultPort: 6379), access: access)
    }
}

extension RedisTopology: Redacted {
    /// The URL without its passwords.
    public var description: String {
        let scheme = usesTLS ? "rediss" : "redis"
        switch self {
        case .single(let endpoint):
            return endpoint.description
        case .sentinel(let sentinel):
            let database = sentinel.access.database == 0 ? "" : "/\(sentinel.access.database)"
            return "\(scheme)+sentinel://\(sentinel.access.shownCredentials)\(address)\(database)"
                + "?master=\(sentinel.master)"
        case .cluster(let cluster):
            return "\(scheme)+cluster://\(cluster.access.shownCredentials)\(address)"
        }
    }
}

/// The assignment of keys to a Cluster's 16,384 slots.
///
/// Source: Redis Cluster specification, "Key distribution model" and "Hash tags".
public enum RedisHashSlot {
    public static let count = 16_384

    /// Returns the slot of a key: of the text between its first `{` and the next `}` if that is not empty, otherwise of the whole key.
    public static func of(_ key: String) -> Int {
        Int(crc16(hashed(Array(key.utf8)[...]))) % count
    }

    private static func hashed(_ key: ArraySlice<UInt8>) -> ArraySlice<UInt8> {
        guard let open = key.firstIndex(of: UInt8(ascii: "{")) else { return key }
        let rest = key[(open + 1)...]
        guard let close = rest.firstIndex(of: UInt8(ascii: "}")), close > rest.startIndex else { return key }
        return rest[..<close]
    }

    /// CRC-16/XMODEM: polynomial 0x1021, initial value 0, not reflected.
    private static func crc16(_ bytes: ArraySlice<UInt8>) -> UInt16 {
        bytes.reduce(0) { crc, byte in
            (0..<8).reduce(crc ^ UInt16(byte) << 8) { crc, _ in
                crc & 0x8000 == 0 ? crc << 1 : crc << 1 ^ 0x1021
            }
        }
    }
}
