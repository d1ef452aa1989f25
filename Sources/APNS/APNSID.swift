/// An `apns-id`: a UUID, kept as its sixteen bytes.
public struct APNSID: Hashable, Sendable, CustomStringConvertible {
    /// The first eight bytes, most significant first.
    public var high: UInt64
    /// The last eight bytes, most significant first.
    public var low: UInt64

    /// The length of the canonical text in bytes.
    public static let textLength = 36

    public init(high: UInt64, low: UInt64) {
        self.high = high
        self.low = low
    }

    /// Makes a version 8 UUID (custom contents, RFC 9562 §5.8) from a hash of 128 bits.
    public init(hash: (UInt64, UInt64)) {
        high = hash.0 & 0xFFFF_FFFF_FFFF_0FFF | 0x8000
        low = hash.1 & 0x3FFF_FFFF_FFFF_FFFF | 0x8000_0000_0000_0000
    }

    /// Reads the canonical form, 8-4-4-4-12 hex digits in either case; `nil` for anything else.
    @inlinable
    public init?(_ text: some Collection<UInt8>) {
        guard text.count == Self.textLength else { return nil }
        var halves: (UInt64, UInt64) = (0, 0)
        var digits = 0
        for (offset, byte) in text.enumerated() {
            if offset == 8 || offset == 13 || offset == 18 || offset == 23 {
                guard byte == 0x2D else { return nil }
                continue
            }
            let value: UInt8
            switch byte {
            case 0x30...0x39: value = byte - 0x30
            case 0x41...0x46: value = byte - 0x41 + 10
            case 0x61...0x66: value = byte - 0x61 + 10
            default: return nil
            }
            if digits < 16 {
                halves.0 = halves.0 << 4 | UInt64(value)
            } else {
                halves.1 = halves.1 << 4 | UInt64(value)
            }
            digits += 1
        }
        (high, low) = halves
    }

    /// Writes the canonical lower-case text.
    /// - Parameter target: memory for at least ``textLength`` bytes.
    public func write(to target: UnsafeMutablePointer<UInt8>) {
        let raw = UnsafeMutableRawPointer(target)
        let first = Self.digits(UInt32(truncatingIfNeeded: high >> 32))
        let second = Self.digits(UInt32(truncatingIfNeeded: high))
        let third = Self.digits(UInt32(truncatingIfNeeded: low >> 32))
        let fourth = Self.digits(UInt32(truncatingIfNeeded: low))
        // The groups have 8, 4, 4, 4 and 12 digits: `second` and `third` are each written in two halves.
        raw.storeBytes(of: first, toByteOffset: 0, as: UInt64.self)
        raw.storeBytes(of: UInt32(truncatingIfNeeded: second), toByteOffset: 9, as: UInt32.self)
        raw.storeBytes(of: UInt32(truncatingIfNeeded: second >> 32), toByteOffset: 14, as: UInt32.self)
        raw.storeBytes(of: UInt32(truncatingIfNeeded: third), toByteOffset: 19, as: UInt32.self)
        raw.storeBytes(of: UInt32(truncatingIfNeeded: third >> 32), toByteOffset: 24, as: UInt32.self)
        raw.storeBytes(of: fourth, toByteOffset: 28, as: UInt64.self)
        target[8] = 0x2D
        target[13] = 0x2D
        target[18] = 0x2D
        target[23] = 0x2D
    }

    /// Returns eight hex digits in memory order. It computes all of them at once: one by one, they took 3 % of a notification's CPU time.
    private static func digits(_ value: UInt32) -> UInt64 {
        var lanes = UInt64(value.byteSwapped)
        lanes = (lanes | lanes << 16) & 0x0000_FFFF_0000_FFFF
        lanes = (lanes | lanes << 8) & 0x00FF_00FF_00FF_00FF
        lanes = (lanes >> 4 & 0x000F_000F_000F_000F) | (lanes & 0x000F_000F_000F_000F) << 8
        let letters = (lanes &+ 0x0606_0606_0606_0606) >> 4 & 0x0101_0101_0101_0101
        return (lanes &+ 0x3030_3030_3030_3030 &+ letters &* 0x27).littleEndian
    }

    public var description: String {
        String(unsafeUninitializedCapacity: Self.textLength) { bytes in
            guard let base = bytes.baseAddress else { return 0 }
            write(to: base)
            return Self.textLength
        }
    }
}
