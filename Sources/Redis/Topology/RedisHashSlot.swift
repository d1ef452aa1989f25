/// Which of a Cluster's 16,384 slots a key belongs to.
///
/// Source: Redis Cluster specification, "Key distribution model" and "Hash tags".
public enum RedisHashSlot {
    /// The number of slots.
    public static let count = 16_384

    /// The slot of a key: that of what stands between its first `{` and the next `}`, when that is anything, else of all.
    public static func of(_ key: String) -> Int {
        Int(crc16(hashed(Array(key.utf8)[...]))) % count
    }

    private static func hashed(_ key: ArraySlice<UInt8>) -> ArraySlice<UInt8> {
        guard let open = key.firstIndex(of: UInt8(ascii: "{")) else { return key }
        let rest = key[(open + 1)...]
        guard let close = rest.firstIndex(of: UInt8(ascii: "}")), close > rest.startIndex else { return key }
        return rest[..<close]
    }

    /// CRC-16/XMODEM: polynomial 0x1021, from 0, nothing reflected.
    private static func crc16(_ bytes: ArraySlice<UInt8>) -> UInt16 {
        bytes.reduce(0) { crc, byte in
            (0..<8).reduce(crc ^ UInt16(byte) << 8) { crc, _ in
                crc & 0x8000 == 0 ? crc << 1 : crc << 1 ^ 0x1021
            }
        }
    }
}
