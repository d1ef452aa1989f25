import APNS
import NIOCore

extension APNSID {
    /// The `apns-id` of a notification whose job has none: derived from the job's id and the token, so that whoever sends
    /// it again, after whatever happened, sends the same one.
    init(jobID: ByteBuffer, token: ByteBuffer) {
        let seed = jobID.withUnsafeReadableBytes { Self.hash($0, seed: (0x61706E73, 0x776F726B)) }
        self.init(hash: token.withUnsafeReadableBytes { Self.hash($0, seed: seed) })
    }

    /// 128 bits of the bytes, by MurmurHash3's x64 variant: quick, the same on every machine, and evenly spread. It does
    /// not have to withstand an attacker, who could choose the `apns_id` anyway.
    static func hash(_ bytes: UnsafeRawBufferPointer, seed: (UInt64, UInt64)) -> (UInt64, UInt64) {
        let first: UInt64 = 0x87C3_7B91_1142_53D5
        let second: UInt64 = 0x4CF5_AD43_2745_937F
        var (low, high) = seed
        var offset = 0
        while offset + 16 <= bytes.count {
            let one = UInt64(littleEndian: bytes.loadUnaligned(fromByteOffset: offset, as: UInt64.self))
            let two = UInt64(littleEndian: bytes.loadUnaligned(fromByteOffset: offset + 8, as: UInt64.self))
            low ^= rotated(one &* first, 31) &* second
            low = (rotated(low, 27) &+ high) &* 5 &+ 0x52DC_E729
            high ^= rotated(two &* second, 33) &* first
            high = (rotated(high, 31) &+ low) &* 5 &+ 0x3849_5AB5
            offset += 16
        }
        var tail: (UInt64, UInt64) = (0, 0)
        for (index, byte) in bytes[offset...].enumerated() {
            if index < 8 {
                tail.0 |= UInt64(byte) << UInt64(8 * index)
            } else {
                tail.1 |= UInt64(byte) << UInt64(8 * (index - 8))
            }
        }
        high ^= rotated(tail.1 &* second, 33) &* first
        low ^= rotated(tail.0 &* first, 31) &* second
        low ^= UInt64(bytes.count)
        high ^= UInt64(bytes.count)
        low &+= high
        high &+= low
        low = mixed(low)
        high = mixed(high)
        low &+= high
        high &+= low
        return (low, high)
    }

    private static func rotated(_ value: UInt64, _ bits: UInt64) -> UInt64 { value << bits | value >> (64 - bits) }

    private static func mixed(_ value: UInt64) -> UInt64 {
        var value = value
        value ^= value >> 33
        value &*= 0xFF51_AFD7_ED55_8CCD
        value ^= value >> 33
        value &*= 0xC4CE_B9FE_1A85_EC53
        return value ^ value >> 33
    }
}
