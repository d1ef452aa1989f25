extension JSONScanner {
    /// Steps over a number.
    package mutating func skipNumber() throws(JSONError) {
        var at = offset
        if bytes[at] == UInt8(ascii: "-") { at &+= 1 }
        guard at < end else { throw JSONError(kind: .unexpectedEnd, offset: end) }
        if bytes[at] == UInt8(ascii: "0") {
            at &+= 1
            // Checked here, because "a comma was expected" would not explain the error in 007.
            if at < end, isDigit(at) { throw error(.invalidNumber) }
        } else {
            at = try endOfDigits(at)
        }
        if at < end, bytes[at] == UInt8(ascii: ".") { at = try endOfDigits(at &+ 1) }
        if at < end, bytes[at] | 0x20 == UInt8(ascii: "e") {
            at &+= 1
            if at < end, bytes[at] == UInt8(ascii: "+") || bytes[at] == UInt8(ascii: "-") { at &+= 1 }
            at = try endOfDigits(at)
        }
        offset = at
    }

    @inline(__always)
    private func isDigit(_ index: Int) -> Bool { bytes[index] &- UInt8(ascii: "0") < 10 }

    /// Steps over digits; at least one is required.
    @inline(__always)
    private func endOfDigits(_ start: Int) throws(JSONError) -> Int {
        var at = start
        while at < end, isDigit(at) { at &+= 1 }
        guard at > start else {
            throw at < end ? error(.invalidNumber) : JSONError(kind: .unexpectedEnd, offset: end)
        }
        return at
    }
}

/// Reads numbers without floating point, because a millisecond must not depend on rounding.
package enum JSONNumber {
    /// Returns the value of a number times a power of ten.
    /// - Parameters:
    ///   - bytes: a JSON number that the scanner has validated.
    ///   - decimals: the number of digits after the point to keep: 0 for integers, 3 for seconds as milliseconds.
    ///   - exact: true to refuse a value with more digits after the point, instead of cutting them.
    /// - Returns: the value, or nil if it does not fit (or is not exact). `1e1` and `10.0` are the integer 10.
    package static func value(of bytes: UnsafeRawBufferPointer, decimals: Int, exact: Bool) -> Int64? {
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

extension JSONScanner {
    /// Steps over a number.
    /// - Returns: its value; nil if there is no number, or it is not an integer or not in the range.
    @inline(__always)
    package mutating func integer(in range: ClosedRange<Int64>) throws(JSONError) -> Int64? {
        guard let number = try number(),
            let value = JSONNumber.value(of: number, decimals: 0, exact: true), range.contains(value)
        else { return nil }
        return value
    }

    /// Steps over a number, if there is one.
    @inline(__always)
    mutating func number() throws(JSONError) -> UnsafeRawBufferPointer? {
        guard let first = next, first == UInt8(ascii: "-") || first &- UInt8(ascii: "0") < 10 else { return nil }
        let start = offset
        try skipNumber()
        return UnsafeRawBufferPointer(rebasing: bytes[start..<offset])
    }
}
