import PrintableText
import WebPages

/// Prints a line for each notification as it arrives. Beyond 50 per second, prints only the number of omitted notifications.
package struct NotificationLines: Sendable {
    package static let maximumPerSecond = 50

    private let recorder: Recorder
    private let write: @Sendable (String) -> Void

    /// - Parameter write: writes a line, and adds the line feed.
    package init(_ recorder: Recorder, write: @escaping @Sendable (String) -> Void) {
        self.recorder = recorder
        self.write = write
    }

    /// Prints until the simulator stops or the task is cancelled. Then prints the notifications that were not printed yet.
    package func run() async {
        var last: UInt64 = 0
        var filter = NotificationFilter()
        filter.limit = Self.maximumPerSecond
        var window = (start: ContinuousClock.now, left: Self.maximumPerSecond)
        while true {
            filter.after = last
            let page = await recorder.notifications(filter, wait: nil)
            guard !page.entries.isEmpty, !Task.isCancelled else { break }
            if ContinuousClock.now - window.start >= .seconds(1) { window = (.now, Self.maximumPerSecond) }
            window.left -= print(page, atMost: window.left, &last)
            guard window.left == 0 else { continue }
            // If the task is cancelled, the sleep throws at once.
            try? await Task.sleep(until: window.start + .seconds(1), clock: .continuous)
            summarize(&last)
        }
        filter.after = last
        _ = print(recorder.notifications(filter), atMost: Self.maximumPerSecond, &last)
        summarize(&last)
    }

    /// Prints a page's notifications.
    /// - Returns: the number of lines.
    private func print(_ page: NotificationPage, atMost limit: Int, _ last: inout UInt64) -> Int {
        if page.overwritten > 0, !page.entries.isEmpty { write(Self.more(page.overwritten)) }
        let entries = page.entries.prefix(limit)
        for entry in entries { write(Self.line(entry.notification)) }
        last = entries.last?.sequence ?? last
        return entries.count
    }

    private func summarize(_ last: inout UInt64) {
        let newest = recorder.count
        if newest > last { write(Self.more(newest - last)) }
        last = newest
    }

    private static func more(_ count: UInt64) -> String { "… and \(Int(clamping: count).grouped) more" }

    /// Returns a notification on one line for a terminal, such as
    /// `✓ 200  00fc13ad…  alert "Your order — On its way"  com.example.app  41 ms  apns-id 7a0d…`.
    static func line(_ notification: ReceivedNotification) -> String {
        var parts = ["\(notification.isSuccess ? "✓" : "✗") \(notification.answerText)"]
        if let target = notification.token ?? notification.channel {
            parts.append("\(target.prefix(8))\(target.count > 8 ? "…" : "")")
        }
        parts.append(notification.preview.summary())
        if let topic = notification.topic { parts.append(String(topic.prefix(100))) }
        if let delay = notification.delayText { parts.append(delay) }
        if let apnsID = notification.apnsID { parts.append("apns-id \(apnsID)") }
        if let identifier = notification.identifier { parts.append("identifier \(identifier)") }
        return parts.joined(separator: "  ").escaped
    }
}

extension String {
    /// The text with unprintable characters escaped as `\u{202E}`, and a space for each tab and line break.
    fileprivate var escaped: String {
        var text = String.UnicodeScalarView()
        for scalar in unicodeScalars {
            if scalar == "\n" || scalar == "\t" || scalar == "\r" {
                text.append(" ")
            } else if scalar.isUnprintable {
                text.append(contentsOf: "\\u{\(String(scalar.value, radix: 16, uppercase: true))}".unicodeScalars)
            } else {
                text.append(scalar)
            }
        }
        return String(text)
    }
}
