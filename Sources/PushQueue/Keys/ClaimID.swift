import NIOCore
import Redis

/// A claim: the number that its lane gave it, and the stamp of the claim script's execution.
///
/// The number alone is ambiguous: a claim command that arrives late, or is repeated after a failover, puts another job
/// under the same number. Because of the stamp, settling one of these jobs never ends the other.
public struct ClaimID: Hashable, Sendable, CustomStringConvertible {
    /// At least 1; 0 for no claim.
    public var number: Int
    /// At most 15 letters and digits, so that the string needs no allocation. A claim from ``rest(afterPart:)`` has more characters.
    public var stamp: String

    /// - Parameters:
    ///   - number: at least 1.
    ///   - stamp: as the claim script returned it.
    public init(number: Int, stamp: String) {
        self.number = number
        self.stamp = stamp
    }

    public static let none = ClaimID(number: 0, stamp: "")

    /// Parses a claim's field in Redis.
    /// - Returns: `nil` if the field is not a claim.
    public init?(field: String) {
        let parts = field.split(separator: ".", omittingEmptySubsequences: false)
        guard parts.count == 2, let number = Int(parts[0]), number > 0, !parts[1].isEmpty else { return nil }
        self.init(number: number, stamp: String(parts[1]))
    }

    /// The field in Redis, `<number>.<stamp>`.
    public var description: String { "\(number).\(stamp)" }

    /// Returns the job's claim after some of its notifications are settled.
    /// - Parameter part: a number that the lane uses for no other part.
    public func rest(afterPart part: Int) -> ClaimID { ClaimID(number: number, stamp: "\(stamp)p\(part)") }
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
