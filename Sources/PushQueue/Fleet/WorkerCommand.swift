/// An operator's command to a worker's process. It stays in Redis for a while, and each lane of the process reads it
/// with its next heartbeat.
///
/// All lanes read it repeatedly, on all queues. So it contains the time when it was given, and a process obeys only
/// a command that is newer than all earlier ones.
public struct WorkerCommand: Sendable, Equatable {
    public enum Kind: String, Sendable, CaseIterable {
        /// Claim nothing more, finish the claimed jobs, and keep running.
        case quiet
        /// Claim again.
        case work
        /// Drain and exit.
        case stop
    }

    /// A command expires after this time, in milliseconds, because its process may no longer exist.
    public static let lifetime = 600_000

    public var kind: Kind
    /// The time when it was given, in milliseconds since 1970 by Redis' clock.
    public var at: Int64

    public init(_ kind: Kind, at: Int64) {
        self.kind = kind
        self.at = at
    }

    /// Parses the text in Redis; `nil` if it is not a command.
    public init?(_ text: String) {
        let parts = text.split(separator: " ", omittingEmptySubsequences: false)
        guard parts.count == 2, let kind = Kind(rawValue: String(parts[0])), let at = Int64(bounding: parts[1]) else {
            return nil
        }
        self.init(kind, at: at)
    }

    /// The text in Redis.
    public var text: String { "\(kind.rawValue) \(at)" }
}
