import FoundationEssentials
import NIOCore
import PrintableText

/// The record in Redis of a paused app or queue: a breaker that opened, or an operator's pause.
package struct PauseRecord: Sendable, Equatable {
    /// The reason's code, or an operator's text, printable.
    package var reason: String
    /// The explanation of the reason, printable.
    package var detail: String?
    /// The beginning of the pause, in milliseconds since 1970; `nil` if unknown.
    package var since: Int64?
    /// The time of the next probe, in milliseconds since 1970; `nil` for a pause that only an operator ends.
    package var until: Int64?
    /// The time at which ``until`` was set, in milliseconds since 1970; `nil` if unknown.
    package var setAt: Int64?
    /// The lane that opened the breaker, or the operator who ordered the pause.
    package var by: String?
    /// The digest of the configuration that APNs has refused; `nil` for a pause of all workers.
    package var configuration: String?
    /// True for a queue whose lanes must hand back the jobs that they have not submitted.
    package var handsBack = false

    /// Makes a pause; see the properties for units.
    package init(
        reason: String, detail: String? = nil, since: Int64? = nil, until: Int64? = nil, by: String? = nil
    ) {
        self.reason = reason
        self.detail = detail
        self.since = since
        self.until = until
        self.by = by
    }

    /// Parses the record in Redis. Any other text is a pause, too: the text is its reason.
    package init(_ text: ByteBuffer) {
        struct Form: Decodable {
            var reason: String?
            var detail: String?
            var since: Double?
            var until: Double?
            var setAt: Double?
            var by: String?
            var configuration: String?
            var now: Bool?

            enum CodingKeys: String, CodingKey {
                case reason, detail, since, until, by, configuration, now
                case setAt = "set_at"
            }
        }
        guard let form = try? JSONDecoder().decode(Form.self, from: Data(text.readableBytesView)) else {
            self.init(reason: String(decoding: text.readableBytesView.prefix(200), as: UTF8.self).printable)
            return
        }
        self.init(
            reason: (form.reason ?? "paused").prefix(200).printable, detail: form.detail?.prefix(400).printable,
            since: form.since.flatMap { Int64(within: $0) },
            until: form.until.flatMap { Int64(within: $0) }, by: form.by?.printable)
        setAt = form.setAt.flatMap { Int64(within: $0) }
        configuration = form.configuration
        handsBack = form.now ?? false
    }

    /// Returns the milliseconds to the next probe; `nil` if only an operator ends the pause. Zero if the clock was set
    /// back since.
    package func wait(now: Int64) -> Int64? {
        guard let until else { return nil }
        if let setAt, setAt > now + 1000 { return 0 }
        return max(0, until - now)
    }

    /// The reason with its detail, such as `HungUp (the gateway drops connections)`.
    package var explanation: String { detail.map { "\(reason) (\($0))" } ?? reason }

    /// The reason, the beginning and the end of the pause, on one line.
    package var inWords: String {
        var words = explanation
        if let since { words += ", since \(Self.time(since))" }
        words += until.map { ", next probe \(Self.time($0))" } ?? ", until an operator resumes it"
        return words
    }

    private static func time(_ milliseconds: Int64) -> String {
        Date(timeIntervalSince1970: Double(milliseconds) / 1000).formatted(.iso8601)
    }

    /// The record of an operator's pause.
    package var json: ByteBuffer {
        var json = ByteBuffer(string: #"{"v":1,"reason":"#)
        json.writeJSONString(reason)
        if let since { json.writeString(",\"since\":\(since)") }
        if let by {
            json.writeString(",\"by\":")
            json.writeJSONString(by)
        }
        if handsBack { json.writeString(",\"now\":true") }
        json.writeString("}")
        return json
    }
}
