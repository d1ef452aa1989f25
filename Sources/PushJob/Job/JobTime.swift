/// Times in jobs and on the command line, as milliseconds since 1970.
public enum JobTime {
    /// The valid times: 1970 to the end of the year 9999, in milliseconds. Current milliseconds, mistaken for seconds, are always outside.
    public static let range: ClosedRange<Int64> = 0...(latestSecond * 1000 + 999)
    /// A year in milliseconds: a job that is scheduled further ahead is probably a mistake.
    public static let farAhead: Int64 = 366 * 86_400_000
    /// The last second of the year 9999.
    static let latestSecond: Int64 = 253_402_300_799

    /// Parses a time that an operator writes: seconds since 1970, with or without a fraction, an ISO 8601 time, or milliseconds since 1970,
    /// as in the JSON of commands. A number of at least 13 digits is one of milliseconds.
    /// - Returns: milliseconds since 1970; `nil` for another text.
    public static func milliseconds(_ text: String) -> Int64? {
        var text = text
        return text.withUTF8 { characters in
            let bytes = UnsafeRawBufferPointer(characters)
            if let time = iso8601(bytes) { return time }
            guard let first = bytes.first, first &- UInt8(ascii: "0") < 10 else { return nil }
            if bytes.count >= 13, bytes.allSatisfy({ $0 &- UInt8(ascii: "0") < 10 }) {
                return JSONNumber.value(of: bytes, decimals: 0, exact: true).flatMap { range.contains($0) ? $0 : nil }
            }
            var scanner = JSONScanner(bytes)
            guard (try? scanner.skipNumber()) != nil, scanner.offset == bytes.count else { return nil }
            return seconds(bytes)
        }
    }

    /// Steps over a time: seconds since 1970, or ISO 8601.
    /// - Returns: milliseconds since 1970.
    static func read(_ scanner: inout JSONScanner) throws(JSONError) -> Int64? {
        guard scanner.next == UInt8(ascii: "\"") else { return try scanner.number().flatMap { seconds($0) } }
        return JSONText.withCharacters(of: try scanner.string(), in: scanner.bytes) { iso8601($0) }
    }

    /// Parses a JSON number of seconds; fractions of a millisecond are cut.
    static func seconds(_ number: UnsafeRawBufferPointer) -> Int64? {
        guard let time = JSONNumber.value(of: number, decimals: 3, exact: false), range.contains(time),
            number.first != UInt8(ascii: "-")
        else { return nil }
        return time
    }

    /// Parses an ISO 8601 date and time in the profile of RFC 3339: `2030-01-31T12:00[:00[.123]](Z|+02:00|+0200|+02)`.
    ///
    /// The offset is required. A time without one is a local time of an unknown place, and a wrong guess would send at a wrong hour.
    static func iso8601(_ text: UnsafeRawBufferPointer) -> Int64? {
        var reader = Reader(text: text)
        guard let year = reader.digits(4), reader.take("-"), let month = reader.digits(2), reader.take("-"),
            let day = reader.digits(2), reader.take("T") || reader.take("t") || reader.take(" "),
            let hour = reader.digits(2), reader.take(":"), let minute = reader.digits(2)
        else { return nil }
        var second = 0
        var fraction = 0
        if reader.take(":") {
            guard let value = reader.digits(2) else { return nil }
            second = value
            if reader.take(".") || reader.take(",") {
                guard let value = reader.milliseconds() else { return nil }
                fraction = value
            }
        }
        guard let offset = reader.offset(), reader.isAtEnd, (1...12).contains(month),
            (1...days(inMonth: month, of: year)).contains(day), hour < 24, minute < 60, second <= 60
        else { return nil }
        let minutes = (days(year: year, month: month, day: day) * 24 + hour) * 60 + minute - offset
        let time = Int64(minutes * 60 + second) * 1000 + Int64(fraction)
        return range.contains(time) ? time : nil
    }

    private static func days(inMonth month: Int, of year: Int) -> Int {
        switch month {
        case 2: year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) ? 29 : 28
        case 4, 6, 9, 11: 30
        default: 31
        }
    }

    /// Returns the days since 1 January 1970. It counts years from March, so that a leap day is the last day of its year.
    private static func days(year: Int, month: Int, day: Int) -> Int {
        let year = month <= 2 ? year - 1 : year
        let era = (year >= 0 ? year : year - 399) / 400
        let yearOfEra = year - era * 400
        let dayOfYear = (153 * ((month + 9) % 12) + 2) / 5 + day - 1
        return era * 146_097 + yearOfEra * 365 + yearOfEra / 4 - yearOfEra / 100 + dayOfYear - 719_468
    }
}

/// The time until which APNs should try to deliver a notification.
public enum Expiration: Equatable, Sendable {
    /// A time in seconds since 1970; 0 means one attempt and no storing (Apple: "Sending notification requests to
    /// APNs", `apns-expiration`).
    case epoch(Int64)
    /// A number of seconds after the job was enqueued.
    case after(seconds: Int64)

    /// Parses the text of a flag: `0`, a second since 1970, an ISO 8601 time, or a duration such as `45s`, `30m`, `1h30m`, `7d` or `2w`.
    /// - Returns: nil for any other text.
    public init?(_ text: String) {
        if let second = Int64(text), (0...JobTime.latestSecond).contains(second) {
            self = .epoch(second)
        } else if let seconds = DurationText.seconds(text) {
            self = .after(seconds: seconds)
        } else {
            // A number with a fraction is a valid time, but not a whole second.
            guard text.contains(":"), let time = JobTime.milliseconds(text) else { return nil }
            self = .epoch(time / 1000)
        }
    }
}

private struct Reader {
    let text: UnsafeRawBufferPointer
    var position = 0

    var isAtEnd: Bool { position == text.count }

    private var digit: Int? {
        guard position < text.count, text[position] &- UInt8(ascii: "0") < 10 else { return nil }
        return Int(text[position] - UInt8(ascii: "0"))
    }

    mutating func take(_ character: Unicode.Scalar) -> Bool {
        guard position < text.count, text[position] == UInt8(ascii: character) else { return false }
        position += 1
        return true
    }

    mutating func digits(_ count: Int) -> Int? {
        var value = 0
        for _ in 0..<count {
            guard let digit else { return nil }
            value = value * 10 + digit
            position += 1
        }
        return value
    }

    /// Reads a fraction of any length, cut to milliseconds.
    mutating func milliseconds() -> Int? {
        guard digit != nil else { return nil }
        var value = 0
        var place = 100
        while let digit {
            value += digit * place
            place /= 10
            position += 1
        }
        return value
    }

    /// Reads an offset from UTC, in minutes.
    mutating func offset() -> Int? {
        if take("Z") || take("z") { return 0 }
        let isNegative = take("-")
        guard isNegative || take("+"), let hours = digits(2), hours < 24 else { return nil }
        var minutes = 0
        if take(":") || digit != nil {
            guard let value = digits(2), value < 60 else { return nil }
            minutes = value
        }
        let offset = hours * 60 + minutes
        return isNegative ? -offset : offset
    }
}
