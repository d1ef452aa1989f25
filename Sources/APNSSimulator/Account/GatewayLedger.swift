import APNS

/// The account of a simulator's binary gateway. An id is the payload's member that identifies it.
package typealias GatewayLedger = Ledger<GatewayCounters, [UInt8]>

/// The counters of the binary gateway.
package struct GatewayCounters: LedgerCounters {
    /// Notifications that arrived whole, by the command they came with.
    package internal(set) var frames: [GatewayCommand: Int] = [:]
    /// Notifications accepted, every time anew.
    package internal(set) var accepted = 0
    /// Notifications that came whole after one that ended the connection, and were thrown away.
    package internal(set) var dropped = 0
    /// Bytes thrown away in which there is nothing to count any more.
    package internal(set) var droppedBytes = 0
    /// Notifications refused, by status, such as `8 InvalidToken`, whether or not a packet told the client.
    package internal(set) var refused: [String: Int] = [:]
    /// Error packets begun, by status.
    package internal(set) var packets: [String: Int] = [:]
    /// Connections of clients whose certificate was taken.
    package internal(set) var connections = 0
    /// Connections that ended, or failed in the handshake, because the client's certificate was not taken.
    package internal(set) var refusedClients = 0
    /// Connections that the gateway closed, with a packet or without.
    package internal(set) var closes = 0
    /// Connections that a rule reset.
    package internal(set) var resets = 0
    /// Connections that a rule stopped reading.
    package internal(set) var hangs = 0
    /// The bytes that arrived, without TLS.
    package internal(set) var bytesReceived = 0

    package init() {}

    package mutating func add(_ tally: GatewayTally) {
        for (command, count) in tally.frames where count > 0 { frames[GatewayCommand(command), default: 0] += count }
        accepted += tally.accepted.count
        dropped += tally.dropped
        droppedBytes += tally.droppedBytes
        bytesReceived += tally.bytesReceived
        for (status, count) in tally.refused { refused[status.label, default: 0] += count }
        for (status, count) in tally.packets { packets[status.label, default: 0] += count }
        closes += tally.closes
        resets += tally.resets
        hangs += tally.hangs
    }
}

/// The number of a command of the binary protocol. In JSON it is an object's key.
package struct GatewayCommand: Hashable, Sendable, Encodable, CodingKeyRepresentable, ExpressibleByIntegerLiteral {
    package let number: UInt8

    init(_ number: UInt8) { self.number = number }

    package init(integerLiteral number: UInt8) { self.number = number }

    package init?(codingKey: some CodingKey) {
        guard let number = UInt8(codingKey.stringValue) else { return nil }
        self.number = number
    }

    package var codingKey: any CodingKey { Key(stringValue: "\(number)") }

    private struct Key: CodingKey {
        let stringValue: String
        var intValue: Int? { nil }

        init(stringValue: String) { self.stringValue = stringValue }
        init?(intValue: Int) { nil }
    }
}

extension GatewayLedger {
    /// Every accepted id with how often it was accepted.
    package var acceptedIDs: [String: Int] {
        var counts: [String: Int] = [:]
        // Ids that are not UTF-8 could become one.
        for (id, count) in ids.all { counts[String(decoding: id, as: UTF8.self), default: 0] += count }
        return counts
    }
}

/// One connection's additions to the account, gathered so that all notifications of a read cost one visit to it.
package struct GatewayTally {
    private var commands: (Int, Int, Int) = (0, 0, 0)
    var accepted: [SimulatedToken] = []
    var ids: [[UInt8]] = []
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
