import NIOCore
import Redis

/// An operator's command to a worker's process. It stays in Redis for a while, where each lane of the process sees it
/// when it renews its lease.
///
/// All lanes see it repeatedly, on all queues, so it has a time: a worker carries out only a command that is newer than
/// all before.
public struct WorkerCommand: Sendable, Equatable {
    /// The kind of command.
    public enum Kind: String, Sendable, CaseIterable {
        /// Claim nothing more, finish what is in flight, and keep running.
        case quiet
        /// Claim again.
        case work
        /// Drain and exit.
        case stop
    }

    /// The time after which a command expires, in milliseconds.
    public static let lifetime = 600_000

    /// The kind of command.
    public var kind: Kind
    /// The time at which it was sent, in milliseconds since 1970 by Redis' clock.
    public var at: Int64

    /// Creates a command.
    public init(_ kind: Kind, at: Int64) {
        self.kind = kind
        self.at = at
    }

    /// Reads the text in Redis; `nil` if it is not a command.
    public init?(_ text: String) {
        let parts = text.split(separator: " ", omittingEmptySubsequences: false)
        guard parts.count == 2, let kind = Kind(rawValue: String(parts[0])), let at = Int64(parts[1]) else {
            return nil
        }
        self.init(kind, at: at)
    }

    /// The text in Redis.
    public var text: String { "\(kind.rawValue) \(at)" }

    /// Sends it to a process, on one of the process's queues, and replaces an earlier command. Works on a Redis whose
    /// memory is full.
    /// - Throws: `RedisError`.
    public func send(to process: String, _ client: RedisClient, _ keys: QueueKeys) async throws {
        try await QueueScript.set(keys.order(process), to: ByteBuffer(string: text), life: Self.lifetime, client)
    }
}
