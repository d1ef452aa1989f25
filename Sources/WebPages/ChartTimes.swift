import PrintableText

/// The axis of time: steps of one length.
package struct ChartTimes: Sendable {
    /// The beginning of the first step, in milliseconds since 1970.
    package let first: Int64
    /// The length of a step in milliseconds.
    package let step: Int64
    package let count: Int

    package init(first: Int64, step: Int64, count: Int) {
        (self.first, self.step, self.count) = (first, max(1, step), max(1, count))
    }

    private static let (minute, hour, day): (Int64, Int64, Int64) = (60_000, 3_600_000, 86_400_000)
    /// The possible distances between two labels. Labels are at multiples of their distance.
    private static let distances =
        [1, 2, 5, 10, 15, 30].map { $0 * minute } + [1, 2, 3, 4, 6, 12].map { $0 * hour } + [
            day, 7 * day, 28 * day,
        ]
    /// Weeks begin on Mondays; 1970 began on a Thursday.
    private static let monday = 4 * day

    var length: Int64 { step * Int64(count) }

    package func start(_ index: Int) -> Int64 { first + step * Int64(index) }

    /// Returns the step of a time; `nil` for one outside the axis.
    package func index(of time: Int64) -> Int? {
        guard time >= first, time < first + length else { return nil }
        return Int((time - first) / step)
    }

    /// Returns the name of a step in UTC: `14:05`, `14:00–14:20` or `Sat 21 Nov`. If the axis has several days, a time is preceded by its
    /// day.
    func name(_ index: Int) -> String {
        let start = start(index)
        guard step < Self.day else { return "\(Self.weekday(start)) \(Self.dayName(start))" }
        let isOneDay = first / Self.day == (first + length - 1) / Self.day
        let end = step > Self.minute ? "–\(Self.clock(start + step))" : ""
        return (isOneDay ? "" : "\(Self.dayName(start)) ") + Self.clock(start) + end
    }

    /// The labels, at round numbers of minutes, hours, days or weeks: at most six, or the seven days of a week.
    var labels: [(at: Int64, text: String)] {
        let distance =
            step == Self.day && count <= 7
            ? Self.day : Self.distances.first { $0 >= step && length / $0 <= 6 } ?? length
        let offset = distance > Self.day ? Self.monday : 0
        var labels: [(at: Int64, text: String)] = []
        var at = (first - offset + distance - 1) / distance * distance + offset
        while at < first + length {
            labels.append((at, label(at, distance)))
            at += distance
        }
        return labels
    }

    private func label(_ at: Int64, _ distance: Int64) -> String {
        if distance == Self.day && step == Self.day { return Self.weekday(at) }
        return distance >= Self.day || at % Self.day == 0 ? Self.dayName(at) : Self.clock(at)
    }

    private static func clock(_ time: Int64) -> String {
        String(EpochTime.clock(milliseconds: time).prefix(5))
    }

    /// Returns a date such as `21 Nov`.
    private static func dayName(_ time: Int64) -> String {
        let text = utcTime(time / 1000)
        let names = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
        let parts = text.prefix(10).split(separator: "-").compactMap { Int($0) }
        guard parts.count == 3, names.indices.contains(parts[1] - 1) else { return text }
        return "\(parts[2]) \(names[parts[1] - 1])"
    }

    private static func weekday(_ time: Int64) -> String {
        ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"][Int((time / day % 7 + 7) % 7)]
    }
}

package enum EpochTime {
    /// The seconds since 1970 whose year has four digits.
    private static let range: ClosedRange<Int64> = 0...253_402_300_799

    /// Returns a time such as `2026-11-21 15:53:52 UTC`, or the number if it is out of range.
    package static func text(seconds: Int64) -> String {
        guard range.contains(seconds) else { return "\(seconds)" }
        return utcTime(seconds).replacing("T", with: " ").replacing("Z", with: " UTC")
    }

    /// Returns the time of day in UTC, such as `15:53:52.123`.
    package static func clock(milliseconds: Int64) -> String {
        let time = ((milliseconds % 86_400_000) + 86_400_000) % 86_400_000
        let parts = [time / 3_600_000, time / 60_000 % 60, time / 1000 % 60].map { $0 < 10 ? "0\($0)" : "\($0)" }
        let fraction = time % 1000
        return parts.joined(separator: ":") + "."
            + String(repeating: "0", count: fraction < 10 ? 2 : fraction < 100 ? 1 : 0)
            + "\(fraction)"
    }
}
