import APNS
import LegacyAPNS

/// The account of a simulator's binary gateway. An id is the value of the payload's member that identifies a
/// notification.
package typealias GatewayLedger = Ledger<GatewayCounters, [UInt8]>

/// The counters of the binary gateway.
package struct GatewayCounters: LedgerCounters {
    /// Notifications that arrived whole, by the command that carried them.
    package internal(set) var frames: [GatewayCommand: Int] = [:]
    /// Notifications accepted, repetitions included.
    package internal(set) var accepted = 0
    /// Notifications that arrived whole after one that ended the connection, and were discarded.
    package internal(set) var dropped = 0
    /// Discarded bytes in which notifications can no longer be counted.
    package internal(set) var droppedBytes = 0
    /// Notifications refused, by status, such as `8 InvalidToken`, whether or not an error packet was sent.
    package internal(set) var refused: [String: Int] = [:]
    /// Error packets whose sending began, by status.
    package internal(set) var packets: [String: Int] = [:]
    /// Connections whose client certificate was accepted.
    package internal(set) var connections = 0
    /// Connections that ended, or failed in the handshake, because the client's certificate was missing or not
    /// accepted.
    package internal(set) var refusedClients = 0
    /// Connections that the gateway closed, with or without an error packet.
    package internal(set) var closes = 0
    /// Connections that a rule reset.
    package internal(set) var resets = 0
    /// Connections on which a rule stopped reading.
    package internal(set) var hangs = 0
    /// Bytes received, without TLS.
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

/// The number of a command of the binary protocol. Encoded as an object's key in JSON.
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
    /// Every accepted id and how often it was accepted.
    package var acceptedIDs: [String: Int] {
        var counts: [String: Int] = [:]
        // Different ids that are not UTF-8 can become the same string.
        for (id, count) in ids.all { counts[String(decoding: id, as: UTF8.self), default: 0] += count }
        return counts
    }
}

/// One connection's additions to the account, collected so that all notifications of one read take the lock once.
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
