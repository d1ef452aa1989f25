import ArgumentParser
import PushJob

/// The time of a flag such as `--since`: a point in time, or a duration before now.
enum TimeOption {
    /// The description of its format, for help texts.
    static let form = "a duration ago such as 10m or 7d, or a time: ISO 8601, or seconds since 1970"

    /// - Parameter now: in milliseconds since 1970.
    /// - Returns: milliseconds since 1970.
    static func milliseconds(_ text: String, _ flag: String, now: Int64) throws -> Int64 {
        if let age = DurationText.milliseconds(text) { return max(0, now - Int64(age)) }
        guard let time = JobTime.milliseconds(text), time >= 0 else {
            throw ValidationError("\(flag) must be \(form), not \(text)")
        }
        return time
    }

    /// Like the other function, for an optional flag.
    static func milliseconds(_ text: String?, _ flag: String, now: Int64) throws -> Int64? {
        try text.map { try milliseconds($0, flag, now: now) }
    }
}
