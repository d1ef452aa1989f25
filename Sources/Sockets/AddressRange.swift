import NIOCore

/// An IP address, or all addresses that begin with the same bits, such as `10.0.0.0/8`.
///
/// An IPv4 address that is mapped to IPv6 is the same address.
public struct AddressRange: Hashable, Sendable {
    private let bytes: [UInt8]
    private let bits: Int

    /// Reads an address such as `10.0.0.1`, or a range such as `10.0.0.0/8` or `fd00::/8`; `nil` for other text.
    public init?(_ text: some StringProtocol) {
        let parts = text.split(separator: "/", maxSplits: 1, omittingEmptySubsequences: false)
        guard let bytes = Self.bytes(of: parts[0]) else { return nil }
        self.bytes = bytes
        guard parts.count > 1 else {
            bits = bytes.count * 8
            return
        }
        // `Int` would accept a sign.
        guard parts[1].utf8.allSatisfy({ $0 &- 0x30 < 10 }), let bits = Int(parts[1]), bits <= bytes.count * 8 else {
            return nil
        }
        self.bits = bits
    }

    /// - Parameter address: the bytes of an address; see ``bytes(of:)``.
    public func contains(_ address: [UInt8]) -> Bool {
        let (whole, rest) = (bits / 8, UInt8(bits % 8))
        guard address.count == bytes.count, address.prefix(whole) == bytes.prefix(whole) else { return false }
        return rest == 0 || (address[whole] ^ bytes[whole]) >> (8 - rest) == 0
    }

    /// Returns the 4 or 16 bytes of an address in network order, 4 for a mapped one; `nil` for other text.
    public static func bytes(of address: some StringProtocol) -> [UInt8]? {
        let read: SocketAddress
        do {
            read = try SocketAddress(ipAddress: String(address), port: 0)
        } catch {
            return nil
        }
        switch read {
        case .v4(let address): return withUnsafeBytes(of: address.address.sin_addr) { Array($0) }
        case .v6(let address):
            let bytes = withUnsafeBytes(of: address.address.sin6_addr) { Array($0) }
            return bytes.prefix(12) == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF] ? Array(bytes.suffix(4)) : bytes
        case .unixDomainSocket: return nil
        }
    }
}
