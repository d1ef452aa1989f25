import PrintableText

/// A Redis server's report about itself, from its reply to `INFO`.
///
/// A field that the server does not report, or reports in an unreadable form, is `nil`. Texts are printable and at most
/// 100 characters long.
public struct ServerInfo: Sendable, Equatable {
    public enum Role: String, Sendable {
        /// Accepts writes.
        case master
        /// Follows a master.
        case replica = "slave"
    }

    /// The version, such as `7.0.15` or `Valkey 8.0.1`.
    public var version: String?
    /// The numbers of the Redis version whose commands the server has, such as `[7, 0, 15]`; empty if unknown.
    public var compatibleVersion: [Int] = []
    /// The memory that counts against ``memoryLimit``, in bytes: without the buffers for replicas and for the append-only file.
    public var usedMemory: Int?
    /// `maxmemory` in bytes; 0 for no limit.
    public var memoryLimit: Int?
    /// The policy at the limit, `maxmemory-policy`, such as `noeviction` or `allkeys-lru`.
    public var evictionPolicy: String?
    public var keepsAppendOnlyFile: Bool?
    public var role: Role?
    public var replicas: Int?
    /// The number of replicas within `min-replicas-max-lag`; `nil` if `min-replicas-to-write` is not set.
    public var replicasInStep: Int?
    public var isClusterNode = false

    /// Parses the text of a reply, which can have all sections of `INFO` or only some.
    public init(_ text: String) {
        let fields = Self.fields(of: text)
        func word(_ name: Substring) -> String? {
            guard let value = fields[name]?.prefix(100).printable, !value.isEmpty else { return nil }
            return value
        }
        func number(_ name: Substring) -> Int? { fields[name].flatMap { Int($0) }.flatMap { $0 >= 0 ? $0 : nil } }

        version = word("valkey_version").map { "Valkey \($0)" } ?? word("redis_version")
        compatibleVersion = (word("redis_version") ?? "").split(separator: ".").map { Int($0) ?? 0 }
        usedMemory = number("used_memory").map { max(0, $0 - (number("mem_not_counted_for_evict") ?? 0)) }
        memoryLimit = number("maxmemory")
        evictionPolicy = word("maxmemory_policy")
        keepsAppendOnlyFile = number("aof_enabled").map { $0 != 0 }
        role = word("role").flatMap(Role.init(rawValue:))
        isClusterNode = number("cluster_enabled") == 1
        replicas = number("connected_slaves")
        replicasInStep = number("min_slaves_good_slaves")
    }

    /// Returns a number in a text of lines such as `cluster_size:3`; `nil` if it is not there.
    static func number(_ name: Substring, in text: String) -> Int? { fields(of: text)[name].flatMap { Int($0) } }

    private static func fields(of text: String) -> [Substring: Substring] {
        var fields: [Substring: Substring] = [:]
        for line in text.split(whereSeparator: \.isNewline) {
            guard let colon = line.firstIndex(of: ":") else { continue }
            fields[line[..<colon]] = line[line.index(after: colon)...]
        }
        return fields
    }

    /// The share of the memory limit that is used, 1 at the limit; `nil` without a limit, or if unknown.
    public var memoryShare: Double? {
        guard let usedMemory, let memoryLimit, memoryLimit > 0 else { return nil }
        return Double(usedMemory) / Double(memoryLimit)
    }

    /// The server counts as nearly full from this share of the memory limit on.
    public static let nearlyFull = 0.9

    /// True if the memory limit is nearly reached, and the server will then refuse jobs.
    public var isNearlyFull: Bool {
        (memoryShare ?? 0) >= Self.nearlyFull && (!evicts || evictsExpiringKeysOnly)
    }

    /// True if the server evicts keys at its memory limit.
    public var evicts: Bool { (memoryLimit ?? 0) > 0 && evictionPolicy != nil && evictionPolicy != "noeviction" }

    public var evictsExpiringKeysOnly: Bool { evicts && evictionPolicy?.hasPrefix("volatile-") == true }

    /// The memory in use and its limit, such as `21.4 of 20.5 MiB`, or without a limit `21.4 MiB`; `nil` if unknown.
    public var memoryInWords: String? {
        guard let usedMemory else { return nil }
        guard let memoryLimit, memoryLimit > 0 else {
            let (unit, name) = Self.unit(of: usedMemory)
            return "\(Self.tenths(usedMemory, of: unit)) \(name)"
        }
        let (unit, name) = Self.unit(of: memoryLimit)
        return "\(Self.tenths(usedMemory, of: unit)) of \(Self.tenths(memoryLimit, of: unit)) \(name)"
    }

    private static func unit(of bytes: Int) -> (bytes: Int, name: String) {
        bytes >= 10 << 30 ? (1 << 30, "GiB") : bytes >= 1 << 20 ? (1 << 20, "MiB") : (1 << 10, "KiB")
    }

    private static func tenths(_ bytes: Int, of unit: Int) -> String {
        "\(bytes / unit).\(bytes % unit * 10 / unit)"
    }
}
