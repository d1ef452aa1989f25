import NIOCore
import PrintableText

/// A digest of the settings that make a worker refuse jobs. All workers of a queue publish theirs in Redis.
///
/// A worker that refuses a job does not know whether another would accept it: during a rolling upgrade, the other worker may have an app
/// that this worker lacks, or a newer version. So the job returns to the queue until a worker of each living configuration has refused it.
public struct ConfigurationDigest: Hashable, Sendable {
    /// The digest of the apps' names and topics, which determine the app of a job.
    public let routing: UInt32
    /// The digest of all other settings that make a worker refuse jobs.
    public let rules: UInt32

    /// - Parameters:
    ///   - routing: the settings that determine the app of a job, always in the same order.
    ///   - rules: all other settings that make a worker refuse jobs, always in the same order.
    public init(routing: [String], rules: [String]) {
        self.routing = Self.digest(routing)
        self.rules = Self.digest(rules)
    }

    /// Parses the text in Redis; `nil` if it is not a digest.
    public init?(_ text: some StringProtocol) {
        guard text.utf8.count == 16, text.isHexadecimal, let value = UInt64(text, radix: 16) else { return nil }
        (routing, rules) = (UInt32(value >> 32), UInt32(truncatingIfNeeded: value))
    }

    /// The text in Redis: 16 hex digits.
    public var text: String { (UInt64(routing) << 32 | UInt64(rules)).digits(16, radix: 16) }

    /// FNV-1a. Equal lists of texts have equal digests in all processes.
    private static func digest(_ texts: [String]) -> UInt32 {
        var hash: UInt32 = 0x811c_9dc5
        for text in texts {
            for byte in Array(text.utf8) + [0] { hash = (hash ^ UInt32(byte)) &* 0x0100_0193 }
        }
        return hash
    }
}

extension ConfigurationDigest {
    /// The maximum number of digests in a list, so that a job that returns to the queue does not grow without end.
    public static let maximumInList = 32

    /// Reads a list of digests, separated by spaces, from a job that returned to the queue. Any client of Redis may have written it.
    public static func list(_ text: String) -> Set<ConfigurationDigest> {
        Set(text.split(separator: " ").prefix(maximumInList).compactMap { ConfigurationDigest($0) })
    }

    public static func text(_ list: Set<ConfigurationDigest>) -> String {
        list.map(\.text).sorted().joined(separator: " ")
    }
}
