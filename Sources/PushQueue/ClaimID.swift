import NIOCore
import Redis

/// A claim: the number that its lane gave it, and the stamp of the execution of the claim script that took the job.
///
/// The number alone would name an assignment only together with the state of Redis in which the claim ran: the same command,
/// delivered late or after a failover, puts another job under the same number. With the stamp, a settlement of the one never
/// ends the other.
public struct ClaimID: Hashable, Sendable, CustomStringConvertible {
    /// From 1; 0 for no claim.
    public var number: Int
    /// 14 or 15 letters and digits.
    public var stamp: String

    /// - Parameters:
    ///   - number: from 1.
    ///   - stamp: as the claim script returned it.
    public init(number: Int, stamp: String) {
        self.number = number
        self.stamp = stamp
    }

    /// No claim.
    public static let none = ClaimID(number: 0, stamp: "")

    /// Reads the field of a claim in Redis.
    /// - Returns: `nil` for another field.
    init?(field: String) {
        let parts = field.split(separator: ".", omittingEmptySubsequences: false)
        guard parts.count == 2, let number = Int(parts[0]), number > 0, !parts[1].isEmpty else { return nil }
        self.init(number: number, stamp: String(parts[1]))
    }

    /// The field in Redis, `<number>.<stamp>`.
    public var description: String { "\(number).\(stamp)" }

    /// The claim that a reservation replaces this one by.
    var reserved: ClaimID { ClaimID(number: number, stamp: stamp + "r") }
}

extension ByteBuffer {
    /// - Returns: the number of bytes written.
    mutating func write(_ claim: ClaimID) -> Int {
        writeDecimal(claim.number) + writeInteger(UInt8(ascii: ".")) + writeString(claim.stamp)
    }
}

extension RedisCommand {
    mutating func append(_ claim: ClaimID) { append { $0.write(claim) } }
}
