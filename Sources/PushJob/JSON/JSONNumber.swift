/// Validates and reads the numbers of a JSON text. It uses no floating point, because rounding could change a time by a millisecond.
public enum JSONNumber {
    // MARK: Validating

    /// Validates a number.
    /// - Parameters:
    ///   - start: the offset of the number's first byte, a minus sign or a digit.
    ///   - end: the end of the text, which may be before the end of the bytes.
    /// - Returns: the offset of the byte after the number.
    @inline(__always)
    static func scan(_ bytes: UnsafeRawBufferPointer, from start: Int, to end: Int) throws(JSONError) -> Int {
        var at = start
        if bytes[at] == UInt8(ascii: "-") { at &+= 1 }
        guard at < end else { throw JSONError(kind: .unexpectedEnd, offset: end) }
        if bytes[at] == UInt8(ascii: "0") {
            at &+= 1
            // Checked here, because "a comma was expected" would not explain the error in 007.
            if at < end, isDigit(bytes[at]) { throw JSONError(kind: .invalidNumber, offset: start) }
        } else {
            at = try endOfDigits(in: bytes, from: at, to: end, ofNumberAt: start)
        }
        if at < end, bytes[at] == UInt8(ascii: ".") {
            at = try endOfDigits(in: bytes, from: at &+ 1, to: end, ofNumberAt: start)
        }
        if at < end, bytes[at] | 0x20 == UInt8(ascii: "e") {
            at &+= 1
            if at < end, bytes[at] == UInt8(ascii: "+") || bytes[at] == UInt8(ascii: "-") { at &+= 1 }
            at = try endOfDigits(in: bytes, from: at, to: end, ofNumberAt: start)
        }
        return at
    }

    @inline(__always)
    private static func isDigit(_ byte: UInt8) -> Bool { byte &- UInt8(ascii: "0") < 10 }

    /// Steps over digits; at least one is required.
    @inline(__always)
    private static func endOfDigits(
        in bytes: UnsafeRawBufferPointer, from first: Int, to end: Int, ofNumberAt start: Int
    ) throws(JSONError) -> Int {
        var at = first
        while at < end, isDigit(bytes[at]) { at &+= 1 }
        guard at > first else {
            throw at < end
                ? JSONError(kind: .invalidNumber, offset: start) : JSONError(kind: .unexpectedEnd, offset: end)
        }
        return at
    }

    // MARK: Reading

    /// Returns a number, multiplied by 10 to the power of `decimals`.
    /// - Parameters:
    ///   - bytes: a JSON number that the scanner has validated.
    ///   - decimals: the number of digits after the point to keep: 0 for integers, 3 for seconds as milliseconds.
    ///   - exact: true to refuse a value with more digits after the point, instead of cutting these digits.
    /// - Returns: nil if the product exceeds 64 bits, or if digits would be cut and `exact` is true. `1e1` and `10.0` are the integer 10.
    public static func value(of bytes: UnsafeRawBufferPointer, decimals: Int, exact: Bool) -> Int64? {
        var significand: Int64 = 0
        var exponent = decimals
        var isCut = false
        var isFraction = false
        var index = bytes.first == UInt8(ascii: "-") ? 1 : 0
        let isNegative = index == 1

        digits: while index < bytes.count {
            switch bytes[index] {
            case UInt8(ascii: "0")...UInt8(ascii: "9"):
                let digit = Int64(bytes[index] &- UInt8(ascii: "0"))
                if significand < 100_000_000_000_000_000 {
                    significand = significand * 10 + digit
                    if isFraction { exponent -= 1 }
                } else {
                    if digit != 0 { isCut = true }
                    if !isFraction { exponent += 1 }
                }
            case UInt8(ascii: "."): isFraction = true
            default: break digits
            }
            index += 1
        }
        if index < bytes.count {
            index += 1
            let isNegativeExponent = bytes[index] == UInt8(ascii: "-")
            if isNegativeExponent || bytes[index] == UInt8(ascii: "+") { index += 1 }
            var power = 0
            while index < bytes.count {
                power = min(power * 10 + Int(bytes[index] &- UInt8(ascii: "0")), 1_000_000_000)
                index += 1
            }
            exponent += isNegativeExponent ? -power : power
        }

        while exponent > 0, significand != 0 {
            let (product, overflow) = significand.multipliedReportingOverflow(by: 10)
            guard !overflow else { return nil }
            significand = product
            exponent -= 1
        }
        while exponent < 0, significand != 0 {
            if significand % 10 != 0 { isCut = true }
            significand /= 10
            exponent += 1
        }
        if exact, isCut { return nil }
        return isNegative ? -significand : significand
    }
}
