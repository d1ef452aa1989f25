import APNS

/// What the binary gateway of a simulator has seen and said since it started.
public struct GatewayAccount: Sendable {
    /// Notifications that arrived whole, by the command they came with.
    public internal(set) var frames: [UInt8: Int] = [:]
    /// Notifications accepted, every time anew.
    public internal(set) var accepted = 0
    /// Notifications that came whole after one that ended the connection, and were thrown away.
    public internal(set) var dropped = 0
    /// Bytes thrown away in which there is nothing to count any more.
    public internal(set) var droppedBytes = 0
    /// Notifications refused, by status, such as `8 InvalidToken`, whether or not a packet told the client.
    public internal(set) var refused: [String: Int] = [:]
    /// Error packets begun, by status.
    public internal(set) var packets: [String: Int] = [:]
    /// Connections of clients whose certificate was taken.
    public internal(set) var connections = 0
    /// Connections that ended, or failed in the handshake, because the client's certificate was not taken.
    public internal(set) var refusedClients = 0
    /// Connections that the gateway closed, with a packet or without.
    public internal(set) var closes = 0
    /// Connections that a rule reset.
    public internal(set) var resets = 0
    /// Connections that a rule stopped reading.
    public internal(set) var hangs = 0
    /// What arrived, without TLS.
    public internal(set) var bytesReceived = 0
    /// Accepted more than once under the same id, counting from the second time; 0 when no member is an id.
    public internal(set) var duplicates = 0
    /// What was accepted, in order: the first 100,000, where that is recorded.
    public internal(set) var records: [GatewayRecord] = []

    private var byID: [[UInt8]: Int] = [:]

    /// More are not recorded.
    public static let maximumRecords = 100_000

    /// How many different ids were accepted.
    public var distinctIDs: Int { byID.count }

    /// How often a notification was accepted under an id.
    public func accepted(id: String) -> Int { byID[Array(id.utf8)] ?? 0 }

    /// Every accepted id with how often it was accepted.
    public var acceptedIDs: [String: Int] {
        var counts: [String: Int] = [:]
        // Ids that are not UTF-8 could become one.
        for (id, count) in byID { counts[String(decoding: id, as: UTF8.self), default: 0] += count }
        return counts
    }

    mutating func add(_ tally: GatewayTally) {
        for (command, count) in tally.frames where count > 0 { frames[command, default: 0] += count }
        accepted += tally.accepted.count
        dropped += tally.dropped
        droppedBytes += tally.droppedBytes
        bytesReceived += tally.bytesReceived
        for (status, count) in tally.refused { refused[status.label, default: 0] += count }
        for (status, count) in tally.packets { packets[status.label, default: 0] += count }
        closes += tally.closes
        resets += tally.resets
        hangs += tally.hangs
        for id in tally.ids {
            let count = byID[id, default: 0] + 1
            byID[id] = count
            if count > 1 { duplicates += 1 }
        }
        records += tally.records.prefix(Self.maximumRecords - records.count)
    }
}

/// A notification that the binary gateway accepted.
public struct GatewayRecord: Encodable, Sendable {
    /// The device token.
    public let token: SimulatedToken
    /// Nil where the frame had none.
    public let identifier: UInt32?
    /// Seconds since 1970; nil where the frame had none.
    public let expiration: UInt32?
    /// Nil where the frame had none.
    public let priority: UInt8?
    /// The payload's bytes.
    public let payload: [UInt8]

    init(_ notification: GatewayNotification, token: SimulatedToken) {
        self.token = token
        identifier = notification.identifier
        expiration = notification.expiration
        priority = notification.priority
        payload = Array(notification.payload ?? UnsafeBufferPointer(start: nil, count: 0))
    }

    private enum Key: String, CodingKey {
        case token, identifier, expiration, priority, payload
    }

    // swift-format-ignore: AllPublicDeclarationsHaveDocumentation
    public func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: Key.self)
        try container.encode(token.hex, forKey: .token)
        try container.encodeIfPresent(identifier, forKey: .identifier)
        try container.encodeIfPresent(expiration, forKey: .expiration)
        try container.encodeIfPresent(priority, forKey: .priority)
        try container.encode(String(decoding: payload, as: UTF8.self), forKey: .payload)
    }
}

extension GatewayAccount: Encodable {
    private enum Key: String, CodingKey {
        case frames, accepted, dropped, droppedBytes, refused, packets, connections, refusedClients, closes, resets
        case hangs, bytesReceived, duplicates, distinctIDs
    }

    /// Everything but the lists.
    public func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: Key.self)
        let named = frames.map { (String($0.key), $0.value) }
        try container.encode(Dictionary(uniqueKeysWithValues: named), forKey: .frames)
        try container.encode(accepted, forKey: .accepted)
        try container.encode(dropped, forKey: .dropped)
        try container.encode(droppedBytes, forKey: .droppedBytes)
        try container.encode(refused, forKey: .refused)
        try container.encode(packets, forKey: .packets)
        try container.encode(connections, forKey: .connections)
        try container.encode(refusedClients, forKey: .refusedClients)
        try container.encode(closes, forKey: .closes)
        try container.encode(resets, forKey: .resets)
        try container.encode(hangs, forKey: .hangs)
        try container.encode(bytesReceived, forKey: .bytesReceived)
        try container.encode(duplicates, forKey: .duplicates)
        try container.encode(distinctIDs, forKey: .distinctIDs)
    }
}

/// What one connection adds to the account, gathered so that all notifications of a read cost one visit to it.
struct GatewayTally {
    private var commands: (Int, Int, Int) = (0, 0, 0)
    var accepted: [SimulatedToken] = []
    var ids: [[UInt8]] = []
    var records: [GatewayRecord] = []
    var dropped = 0
    var droppedBytes = 0
    var bytesReceived = 0
    var refused: [GatewayStatus: Int] = [:]
    var packets: [GatewayStatus: Int] = [:]
    var closes = 0
    var resets = 0
    var hangs = 0

    mutating func arrived(command: UInt8) {
        switch command {
        case 0: commands.0 += 1
        case 1: commands.1 += 1
        default: commands.2 += 1
        }
    }

    var frames: [(UInt8, Int)] { [(0, commands.0), (1, commands.1), (2, commands.2)] }
}
