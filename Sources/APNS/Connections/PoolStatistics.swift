/// What the connections of a pool are doing, for metrics.
public struct PoolStatistics: Sendable, Equatable {
    /// Connections that are being made: name, TCP, proxy and TLS.
    public var connecting = 0
    /// Connections that take requests.
    public var usable = 0
    /// Connections that finish what is under way and end.
    public var draining = 0
    /// Requests under way, on all of them.
    public var streamsInUse = 0
    /// Requests that the usable connections allow at once.
    public var streamLimit = 0
    /// Connections that could not be made or failed before an answer, in a row.
    public var failures = 0

    /// All zero.
    public init() {}
}
