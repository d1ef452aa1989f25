import NIOCore
import PushJob
import PushQueue

/// A result as it is shown.
package struct ResultLine: Sendable {
    package let queue: String
    package private(set) var result: StoredResult
    /// The names of members that its JSON omits.
    var omitted: Set<String> = []

    package init(queue: String, result: StoredResult) { (self.queue, self.result) = (queue, result) }

    /// Returns the result with its token in another form.
    package func replacingToken(_ form: (String) -> String) -> ResultLine {
        guard let token = result["token"] else { return self }
        let fields = result.fields.map {
            ($0.name, $0.name == "token" ? ByteBuffer(string: form(token)) : $0.value)
        }
        var line = self
        line.result = StoredResult(entry: result.entry, index: result.index, fields: fields)
        return line
    }
}

extension ResultLine: Shown {
    package static let columns = Columns<Self>(
        "Result", "A result.", commands: ["results"], isSorted: false, isOpen: true,
        [
            .init("queue", "Queue.", as: .queue, \.queue),
            .init("entry", "Text that no other result of the queue has.", as: .key, \.entry),
            .text("Time", as: .key, in: .table) { $0.result.time.map(Moment.text) ?? $0.result.entry },
            .text("Age", as: .age, in: .table, \.result.time),
            .init("at", "Time of the outcome, by the clock of Redis.", as: .time, \.result.time),
            field("outcome", "Outcome:", as: .choice(Outcome.allCases.map(\.rawValue)), in: .table),
            field("reason", "Reason, of APNs or of the worker.", in: .table),
            number("status", "Status of HTTP or of the gateway.", in: .table),
            field("app", "App.", in: .table),
            field("id", "ID of the job.", in: .table),
            field("apns_id", "`apns-id` that was sent.", title: "APNs ID", in: .table),
            field("apns_unique_id", "ID for Apple's Push Notifications Console."),
            field("replaced_by", "ID or campaign of the newer job that replaced this job."),
            field("token", "Device token or channel; the API shortens it for viewers."),
            field("campaign", "Campaign of the job."),
            field("fair", "Key `fair` of the job."),
            .init("labels", "Labels of the job.") { _ in [String: String]?.none },
            number("attempt", "Number of attempts; 0 if the notification was never sent."),
            field("trace_id", "Trace of the job's `traceparent`."),
            field("parent_id", "Span of the job's `traceparent`."),
            field("event", "`campaign_finished` for a result about a campaign, which has no outcome."),
            .init("report", "Numbers of the campaign that has finished.", \.report),
        ])

    private static func field(
        _ name: String, _ meaning: String, as kind: ColumnKind = .plain, title: String? = nil,
        in places: ColumnPlaces = []
    ) -> Column<Self> { Column(name, meaning, as: kind, title: title, in: places) { $0.result[name] } }

    private static func number(_ name: String, _ meaning: String, in places: ColumnPlaces = []) -> Column<Self> {
        Column(name, meaning, in: places) { $0.result[name].flatMap { Int($0) } }
    }

    private var entry: String? { omitted.contains("entry") ? nil : result.id }
    private var report: Report? { nil }

    /// The report of a finished campaign, which a script writes.
    private struct Report: Shown {
        static let columns = Columns<Self>(
            "FinishedCampaign", "The report of a finished campaign. docs/results.md has its members.", isOpen: true, [])
    }

    /// Appends the members as they are in Redis, because other programs can write further members.
    package func writeObject(to json: inout ByteBuffer, isDetailed: Bool) {
        json.writeString("{\"queue\":")
        json.writeJSONString(queue)
        if let entry {
            json.writeString(",\"entry\":")
            json.writeJSONString(entry)
        }
        for (name, value) in result.fields where value.readableBytes > 0 && !omitted.contains(name) {
            json.writeString(",")
            json.writeJSONString(name == "time" ? "at" : name)
            json.writeString(":")
            if Self.isPlain(name, value) { json.writeImmutableBuffer(value) } else { json.writeJSONString(value) }
        }
        json.writeString("}")
    }

    /// Returns true for a value that is JSON itself. The value is validated, because any producer can write to the
    /// stream.
    private static func isPlain(_ name: String, _ value: ByteBuffer) -> Bool {
        switch name {
        case "status", "attempt", "time":
            return Int(String(buffer: value)).map { "\($0)" == String(buffer: value) } ?? false
        case "labels", "report":
            guard value.readableBytesView.first == UInt8(ascii: "{") else { return false }
            return value.withUnsafeReadableBytes { bytes in
                do throws(JSONError) {
                    try JSONScanner.validate(bytes)
                    return !bytes.contains(0x0A) && !bytes.contains(0x0D)
                } catch {
                    return false
                }
            }
        default: return false
        }
    }
}

extension ResultLine: Counted {
    package static let (things, narrowing) = ("results", "--id")
    package static let groups = ["outcome", "reason", "app", "campaign", "fair", labelGroup, "queue"]
    package var labels: [String: String]? { result.labels }
}
