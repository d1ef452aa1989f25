import FoundationEssentials
import NIOCore
import PrintableText

/// The record in Redis of an app or queue that an operator has paused.
public struct PauseRecord: Sendable, Equatable, Encodable {
    /// The reason's code, or an operator's text, printable.
    public var reason: String
    /// The explanation of the reason, printable.
    public var detail: String?
    /// The beginning of the pause, in milliseconds since 1970; `nil` if unknown.
    public var since: Int64?
    /// The operator who ordered the pause.
    public var by: String?
    /// True for a queue whose lanes must hand back the jobs that they have not submitted.
    public var handsBack = false

    /// The members of its JSON for other programs.
    private enum CodingKeys: String, CodingKey { case reason, detail, since, by }

    public init(reason: String, detail: String? = nil, since: Int64? = nil, by: String? = nil) {
        self.reason = reason
        self.detail = detail
        self.since = since
        self.by = by
    }

    /// Parses the record in Redis. Any other text is also a pause, with the text as its reason.
    public init(_ text: ByteBuffer) {
        struct Form: Decodable {
            var reason: String?
            var detail: String?
            var since: Double?
            var by: String?
            var now: Bool?
        }
        guard let form = try? JSONDecoder().decode(Form.self, from: Data(text.readableBytesView)) else {
            self.init(reason: String(decoding: text.readableBytesView.prefix(200), as: UTF8.self).printable)
            return
        }
        self.init(
            reason: (form.reason ?? "paused").prefix(200).printable, detail: form.detail?.prefix(400).printable,
            since: form.since.flatMap { Int64(within: $0) }, by: form.by?.printable)
        handsBack = form.now ?? false
    }

    /// The reason with its detail, such as `HungUp (the gateway drops connections)`.
    public var explanation: String { detail.map { "\(reason) (\($0))" } ?? reason }

    /// The reason and the beginning of the pause, on one line.
    public var inWords: String {
        explanation + (since.map { ", since \(utcTime($0 / 1000))" } ?? "") + ", until an operator resumes it"
    }

    /// The record as it is in Redis.
    public var json: ByteBuffer {
        var json = ByteBuffer(string: #"{"v":1"#)
        json.writeMember("reason", reason)
        json.writeMember("since", since)
        json.writeMember("by", by)
        // The claim script searches for these bytes.
        if handsBack { json.writeMember("now", true) }
        json.writeString("}")
        return json
    }
}
