import Glibc

/// When a line was written.
public struct LogTime: Sendable {
    /// Milliseconds since 1970.
    public var milliseconds: Int64

    /// - Parameter milliseconds: since 1970.
    public init(milliseconds: Int64) { self.milliseconds = milliseconds }

    /// Now.
    public static var now: LogTime {
        var time = timespec()
        clock_gettime(CLOCK_REALTIME, &time)
        return LogTime(milliseconds: Int64(time.tv_sec) * 1000 + Int64(time.tv_nsec) / 1_000_000)
    }

    /// ISO 8601 in UTC with milliseconds, such as `2026-11-21T15:54:44.123Z`.
    public var text: String {
        var seconds = time_t(milliseconds / 1000)
        var parts = tm()
        gmtime_r(&seconds, &parts)
        func digits(_ number: Int, _ count: Int) -> String {
            let text = String(number)
            return String(repeating: "0", count: max(0, count - text.utf8.count)) + text
        }
        let date =
            "\(digits(Int(parts.tm_year) + 1900, 4))-\(digits(Int(parts.tm_mon) + 1, 2))-\(digits(Int(parts.tm_mday), 2))"
        let time = "\(digits(Int(parts.tm_hour), 2)):\(digits(Int(parts.tm_min), 2)):\(digits(Int(parts.tm_sec), 2))"
        return "\(date)T\(time).\(digits(Int(milliseconds % 1000), 3))Z"
    }
}
