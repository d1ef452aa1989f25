import TestSupport
import Testing

@testable import APNS

@Suite("Retry-After")
struct RetryAfterTests {
    private func seconds(_ text: String, now: Int64 = 784_111_777) -> Int32? {
        RetryAfter.seconds(Array(text.utf8), now: now)
    }

    @Test("is a number of seconds, and a very large one is a day")
    func numbers() {
        #expect(seconds("0") == 0 && seconds("7") == 7 && seconds("0007") == 7 && seconds("86400") == 86_400)
        for text in ["86401", "999999999", "4000000000", "99999999999999999999"] { #expect(seconds(text) == 86_400) }
        #expect(seconds("00000000000000000007") == 7)
    }

    @Test("is a time")
    func times() {
        // The example from RFC 9110.
        #expect(seconds("Sun, 06 Nov 1994 08:49:37 GMT") == 0)
        #expect(seconds("Sun, 06 Nov 1994 08:50:07 GMT") == 30)
        #expect(seconds("Sun, 06 Nov 1994 08:49:07 GMT") == 0, "in the past")
        #expect(seconds("Thu, 29 Feb 2024 00:00:10 GMT", now: 1_709_164_800) == 10)
        #expect(seconds("Fri, 01 Mar 2024 00:00:00 GMT", now: 1_709_251_199) == 1)
        #expect(seconds("Fri, 31 Dec 9999 23:59:59 GMT") == 86_400)
    }

    @Test("has no other form")
    func others() {
        for text in [
            "", "-1", "1.5", "7s", "soon", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994",
            "Sun, 06 Nov 1994 08:49:37 CET", "Sun, 06 Nix 1994 08:49:37 GMT", "Sun, 00 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 24:49:37 GMT", "Sun, 06 Nov 1994 08:60:37 GMT", "Sun, ab Nov 1994 08:49:37 GMT",
        ] { #expect(seconds(text) == nil, "\(text)") }
    }
}
