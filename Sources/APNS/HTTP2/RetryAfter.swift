import Glibc

/// Reads the value of a `Retry-After` field (RFC 9110 §10.2.3): seconds, or a time.
public enum RetryAfter {
    /// The longest wait in seconds, one day. Longer waits are reduced to it.
    static let longest: Int32 = 86_400
    private static let months = Array("JanFebMarAprMayJunJulAugSepOctNovDec".utf8)

    static func seconds(_ value: UnsafeBufferPointer<UInt8>) -> Int32? {
        seconds(value, now: Int64(time(nil)))
    }

    /// Returns the seconds to wait, from 0 to ``longest``; `nil` for a value that is neither a number nor a time.
    /// - Parameter now: seconds since 1970.
    public static func seconds(_ value: some Collection<UInt8>, now: Int64) -> Int32? {
        let value = Array(value)
        guard !value.isEmpty else { return nil }
        if value.allSatisfy(isDigit) {
            // Any number of digits is allowed.
            let digits = value.drop { $0 == UInt8(ascii: "0") }
            return digits.count > 9 ? longest : Int32(clamping: min(number(digits) ?? 0, Int(longest)))
        }
        return date(value).map { Int32(clamping: min(max(0, $0 - now), Int64(longest))) }
    }

    /// Reads the one date format that senders may generate, `Sun, 06 Nov 1994 08:49:37 GMT` (RFC 9110 §5.6.7).
    /// - Returns: seconds since 1970.
    private static func date(_ text: [UInt8]) -> Int64? {
        guard text.count == 29, text[3] == UInt8(ascii: ","), text[26...].elementsEqual("GMT".utf8),
            text[19] == UInt8(ascii: ":"), text[22] == UInt8(ascii: ":"),
            let day = number(text[5..<7]), let year = number(text[12..<16]), let hour = number(text[17..<19]),
            let minute = number(text[20..<22]), let second = number(text[23..<25]), (1...31).contains(day), hour < 24,
            minute < 60, second <= 60,
            let month = (0..<12).first(where: { months[$0 * 3..<$0 * 3 + 3].elementsEqual(text[8..<11]) })
        else { return nil }
        return 86_400 * days(year, month + 1, day) + Int64(hour * 3600 + minute * 60 + second)
    }

    /// Returns the number of days from 1970 to a date of the Gregorian calendar.
    private static func days(_ year: Int, _ month: Int, _ day: Int) -> Int64 {
        // A year that begins in March has its leap day at the end.
        let shifted = month > 2 ? year : year - 1
        let dayOfYear = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1
        return Int64(shifted * 365 + shifted / 4 - shifted / 100 + shifted / 400 + dayOfYear - 719_468)
    }

    private static func isDigit(_ byte: UInt8) -> Bool { byte &- 0x30 < 10 }

    private static func number(_ digits: some Collection<UInt8>) -> Int? {
        guard digits.allSatisfy(isDigit) else { return nil }
        return digits.reduce(0) { $0 * 10 + Int($1 &- 0x30) }
    }
}
