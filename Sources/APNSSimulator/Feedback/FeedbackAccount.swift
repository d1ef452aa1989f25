/// What the feedback service of a simulator has served since it started.
public struct FeedbackAccount: Encodable, Sendable {
    /// Connections of clients whose certificate was taken.
    public internal(set) var connections = 0
    /// Connections that ended, or failed in the handshake, because the client's certificate was not taken.
    public internal(set) var refusedClients = 0
    /// Records begun to be sent, and forgotten.
    public internal(set) var served = 0
    /// Records that wait to be served.
    public internal(set) var waiting = 0
}
