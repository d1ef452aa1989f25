enum Hexadecimal {
    // A table behind a pointer, because an array's subscript checks bounds and uniqueness for every digit of every
    // request. Safe although unchecked: it is filled once during initialization and never written again.
    private nonisolated(unsafe) static let values: UnsafePointer<UInt8> = {
        let table = UnsafeMutablePointer<UInt8>.allocate(capacity: 256)
        for byte in 0..<256 {
            switch UInt8(byte) {
            case 0x30...0x39: table[byte] = UInt8(byte) - 0x30
            case 0x61...0x66: table[byte] = UInt8(byte) - 0x61 + 10
            case 0x41...0x46: table[byte] = UInt8(byte) - 0x41 + 10
            default: table[byte] = 0xFF
            }
        }
        return UnsafePointer(table)
    }()

    /// Returns the digit's value, or 255 if it is not a hex digit.
    static func value(_ digit: UInt8) -> UInt8 { values[Int(digit)] }

    /// Returns the value of 16 digits; sets a bit of the upper half of `invalid` if one is not a hex digit.
    static func word(_ digits: UnsafeBufferPointer<UInt8>, at offset: Int, _ invalid: inout UInt8) -> UInt64 {
        let table = values
        var word: UInt64 = 0
        for index in offset..<offset + 16 {
            let value = table[Int(digits[index])]
            invalid |= value
            word = word << 4 | UInt64(value & 0x0F)
        }
        return word
    }
}
