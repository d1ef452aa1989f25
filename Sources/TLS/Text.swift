import Glibc
import PrintableText

/// Seconds since 1970 as `2026-01-31T12:00:00Z`.
package func utcTime(_ seconds: Int64) -> String {
    var time = time_t(seconds)
    var parts = tm()
    guard gmtime_r(&time, &parts) != nil else { return "\(seconds)" }
    let capacity = 40
    return String(unsafeUninitializedCapacity: capacity) { buffer in
        buffer.withMemoryRebound(to: CChar.self) { strftime($0.baseAddress, capacity, "%Y-%m-%dT%H:%M:%SZ", &parts) }
    }
}

/// A text from outside, fit for a log line: a certificate's names are the peer's to choose, and may hold line breaks
/// or terminal escapes.
package func printable(_ text: String) -> String {
    text.printable(replacing: "?", atMost: 253)
}
