import NIOCore

/// The key by which operators name a job: the first ten hex digits of the SHA-1 of the producer's bytes.
///
/// It stays the same while the job waits, is claimed and is tried again. Equal jobs have equal keys.
package enum JobKey {
    /// Returns the key of a job.
    /// - Parameter original: the producer's bytes.
    package static func of(_ original: ByteBuffer) -> String {
        let (one, two) = original.withUnsafeReadableBytes(digest)
        let digits = Array("0123456789abcdef".utf8)
        var key: [UInt8] = []
        for shift in stride(from: UInt32(28), through: 0, by: -4) { key.append(digits[Int(one >> shift & 15)]) }
        key.append(digits[Int(two >> 28)])
        key.append(digits[Int(two >> 24 & 15)])
        return String(decoding: key, as: UTF8.self)
    }

    /// The first two words of a SHA-1 (RFC 3174).
    private static func digest(_ bytes: UnsafeRawBufferPointer) -> (UInt32, UInt32) {
        var state: [UInt32] = [0x6745_2301, 0xEFCD_AB89, 0x98BA_DCFE, 0x1032_5476, 0xC3D2_E1F0]
        var words = [UInt32](repeating: 0, count: 80)
        let whole = bytes.count / 64 * 64
        for start in stride(from: 0, to: whole, by: 64) {
            mix(UnsafeRawBufferPointer(rebasing: bytes[start..<start + 64]), into: &state, &words)
        }
        // The rest, a bit, zeros, and the number of bits.
        var rest = [UInt8](bytes[whole...]) + [0x80]
        while rest.count % 64 != 56 { rest.append(0) }
        let bits = UInt64(bytes.count) &* 8
        for shift in stride(from: UInt64(56), through: 0, by: -8) {
            rest.append(UInt8(truncatingIfNeeded: bits >> shift))
        }
        rest.withUnsafeBytes { rest in
            for start in stride(from: 0, to: rest.count, by: 64) {
                mix(UnsafeRawBufferPointer(rebasing: rest[start..<start + 64]), into: &state, &words)
            }
        }
        return (state[0], state[1])
    }

    private static func mix(_ block: UnsafeRawBufferPointer, into state: inout [UInt32], _ words: inout [UInt32]) {
        for index in 0..<16 {
            words[index] = UInt32(bigEndian: block.loadUnaligned(fromByteOffset: index * 4, as: UInt32.self))
        }
        for index in 16..<80 {
            words[index] = rotated(words[index - 3] ^ words[index - 8] ^ words[index - 14] ^ words[index - 16], 1)
        }
        var (a, b, c, d, e) = (state[0], state[1], state[2], state[3], state[4])
        for index in 0..<80 {
            let (mixed, constant): (UInt32, UInt32) =
                switch index {
                case ..<20: (b & c | ~b & d, 0x5A82_7999)
                case ..<40: (b ^ c ^ d, 0x6ED9_EBA1)
                case ..<60: (b & c | b & d | c & d, 0x8F1B_BCDC)
                default: (b ^ c ^ d, 0xCA62_C1D6)
                }
            let next = rotated(a, 5) &+ mixed &+ e &+ constant &+ words[index]
            (e, d, c, b, a) = (d, c, rotated(b, 30), a, next)
        }
        for (index, value) in [a, b, c, d, e].enumerated() { state[index] &+= value }
    }

    private static func rotated(_ word: UInt32, _ count: UInt32) -> UInt32 { word << count | word >> (32 - count) }
}
