import NIOCore
import Redis

/// An operator's command to a worker's process: it stays in Redis for a while, where each of its lanes sees it with the
/// next lease that it renews and tells of itself with.
///
/// It is seen again and again, by all lanes and on all queues, so it carries when it was given: only one that is newer than
/// all before is obeyed.
public struct WorkerCommand: Sendable, Equatable {
    /// The kind of command.
    public enum Kind: String, Sendable, CaseIterable {
        /// Claim nothing more, finish what is under way, and stay.
        case quiet
        /// Claim again.
        case work
        /// Drain and end.
        case stop
    }

    /// How long an order stands, in milliseconds. Orders for processes that are gone vanish then.
    public static let lifetime = 600_000

    /// The kind of command.
    public var kind: Kind
    /// When it was given, in milliseconds since 1970 by Redis' clock.
    public var at: Int64

    /// From its parts.
    public init(_ kind: Kind, at: Int64) {
        self.kind = kind
        self.at = at
    }

    /// Reads what stands in Redis; `nil` if it is no order.
    public init?(_ text: String) {
        let parts = text.split(separator: " ", omittingEmptySubsequences: false)
        guard parts.count == 2, let kind = Kind(rawValue: String(parts[0])), let at = Int64(parts[1]) else {
            return nil
        }
        self.init(kind, at: at)
    }

    /// The text in Redis.
    public var text: String { "\(kind.rawValue) \(at)" }

    /// Gives it to a process, on one of the queues that it works on. A later order takes its place. Works on a Redis whose
    /// memory is full.
    /// - Throws: `RedisError`.
    public func give(to process: String, _ client: RedisClient, _ keys: QueueKeys) async throws {
        try await QueueScript.set(keys.order(process), to: ByteBuffer(string: text), life: Self.lifetime, client)
    }
}
