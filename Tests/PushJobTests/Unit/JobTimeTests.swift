import Foundation
import Testing

@testable import PushJob

@Suite("Job times and durations")
struct JobTimeTests {
    @Test(
        "Seconds, milliseconds and ISO 8601 are read as milliseconds.",
        arguments: [
            ("0", Int64(0)), ("1700000000", 1_700_000_000_000), ("1700000000.5", 1_700_000_000_500),
            ("1.0019", 1001), ("1970-01-01T00:00:00Z", 0), ("2030-01-31T12:00:00Z", 1_896_091_200_000),
            ("2030-01-31t12:00:00z", 1_896_091_200_000), ("2030-01-31 12:00:00Z", 1_896_091_200_000),
            ("2030-01-31T12:00Z", 1_896_091_200_000), ("2030-01-31T12:00:00.123Z", 1_896_091_200_123),
            ("2030-01-31T12:00:00,123456789Z", 1_896_091_200_123), ("2030-01-31T12:00:00.1Z", 1_896_091_200_100),
            ("2030-01-31T14:00:00+02:00", 1_896_091_200_000), ("2030-01-31T06:30:00-0530", 1_896_091_200_000),
            ("2030-01-31T14:00:00+02", 1_896_091_200_000), ("2030-01-31T12:00:00-00:00", 1_896_091_200_000),
            ("2028-02-29T00:00:00Z", 1_835_395_200_000), ("2016-12-31T23:59:60Z", 1_483_228_800_000),
            ("1970-01-01T01:00:00+01:00", 0), ("9999-12-31T23:59:59.999Z", 253_402_300_799_999),
            ("253402300799.999", 253_402_300_799_999), ("1700000000000", 1_700_000_000_000),
            ("253402300799999", 253_402_300_799_999),
        ])
    func good(text: String, time: Int64) { #expect(JobTime.milliseconds(text) == time) }

    @Test(
        "refuses other texts, and times without offset or that do not exist",
        arguments: [
            "", " ", "now", "-1", "+1", "1,5", "1e", "0x10", "253402300800", "253402300800000", "1700000000000.5",
            "2030-01-31",
            "2030-01-31T12:00:00", "2030-01-31T12:00:00.Z", "2030-01-31T12Z", "2030-01-31T24:00:00Z",
            "2030-01-31T12:60:00Z", "2030-01-31T12:00:61Z", "2030-00-31T12:00:00Z", "2030-13-01T12:00:00Z",
            "2030-02-30T12:00:00Z", "2029-02-29T00:00:00Z", "2100-02-29T00:00:00Z", "2030-04-31T00:00:00Z",
            "2030-01-00T00:00:00Z", "2030-1-31T12:00:00Z", "30-01-31T12:00:00Z", "2030-01-31T12:00:00+2",
            "2030-01-31T12:00:00+02:", "2030-01-31T12:00:00+24:00", "2030-01-31T12:00:00+02:60",
            "2030-01-31T12:00:00Zx", "2030-01-31T12:00:00 Z", "1969-12-31T23:59:59Z", "9999-12-31T23:59:59-01:00",
            "20300131T120000Z", "٢٠٣٠-01-31T12:00:00Z",
        ])
    func bad(text: String) { #expect(JobTime.milliseconds(text) == nil) }

    @Test("agrees with Foundation on days over four centuries")
    func calendar() throws {
        let formatter = Date.ISO8601FormatStyle()
        for day in stride(from: 0, to: 150_000, by: 13) {
            let date = Date(timeIntervalSince1970: Double(day) * 86400 + Double(day % 86400))
            #expect(JobTime.milliseconds(date.formatted(formatter)) == Int64(date.timeIntervalSince1970) * 1000)
        }
    }

    @Test(
        "reads expirations: durations, and seconds since 1970",
        arguments: [
            ("45s", .after(seconds: 45)), ("30m", .after(seconds: 1800)), ("1h", .after(seconds: 3600)),
            ("1d", .after(seconds: 86400)), ("2w", .after(seconds: 1_209_600)), ("1h30m", .after(seconds: 5400)),
            ("1w1d1h1m1s", .after(seconds: 694_861)), ("0s", .after(seconds: 0)), ("90m", .after(seconds: 5400)),
            ("36500d", .after(seconds: 3_153_600_000)), ("0", .epoch(0)), ("1900000000", .epoch(1_900_000_000)),
        ] as [(String, Expiration)])
    func expirations(text: String, expiration: Expiration) { #expect(Expiration(text) == expiration) }

    @Test(
        "refuses text that is not a duration, and endless durations",
        arguments: [
            "", "s", "h1", "1h30", "1x", "1H", "-1h", "+1h", "1.5h", " 1h", "1h ", "1h 30m", "1m1h", "1h1h", "1hh",
            "36501d", "99999999999999999999s", "9223372036854775807w", "1700000000000", "never",
        ])
    func badDurations(text: String) { #expect(Expiration(text) == nil) }

    @Test(
        "milliseconds are the smallest unit of durations outside of jobs",
        arguments: [
            ("500ms", 500), ("1s500ms", 1500), ("1m1ms", 60_001), ("1h30m", 5_400_000), ("0ms", 0),
            ("36500d", 3_153_600_000_000), ("1ms1s", nil), ("1ms1ms", nil), ("1m1m", nil), ("1500", nil), ("1.5s", nil),
            ("36500d1ms", nil), ("3153600000001ms", nil), ("9999999999999w", nil), ("800us", nil), ("ms", nil),
        ] as [(String, Int?)])
    func milliseconds(text: String, expected: Int?) {
        #expect(DurationText.milliseconds(text) == expected)
        if text.hasSuffix("ms") { #expect(DurationText.seconds(text) == nil) }
    }

    @Test(
        "a duration is written in its largest unit without a fraction, and read as it is written",
        arguments: [(500, "500ms"), (1000, "1s"), (90_000, "90s"), (3_600_000, "1h"), (14 * 86_400_000, "14d")])
    func written(milliseconds: Int, text: String) {
        #expect(DurationText.text(milliseconds) == text)
        #expect(DurationText.milliseconds(text) == milliseconds)
    }
}
