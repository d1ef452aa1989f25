import Operations
import Telemetry

extension ResultLine {
    /// Returns the result as a line of text.
    /// - Parameter namesQueue: true if results of several queues are mixed.
    func text(namesQueue: Bool) -> String {
        let time = result.time.map { LogTime(milliseconds: $0).text } ?? result.entry
        var parts = [time, LogEscape.escaped(result["outcome"] ?? result["event"] ?? "?")]
        if let reason = result["reason"] { parts.append(LogEscape.escaped(reason)) }
        if namesQueue { parts.append("queue=\(queue)") }
        for name in [
            "status", "app", "id", "campaign", "fair", "attempt", "apns_id", "apns_unique_id", "replaced_by",
            "trace_id",
            "labels", "report",
        ] {
            if let value = result[name] { parts.append("\(name)=\(LogEscape.escaped(value))") }
        }
        if let token = result["token"] { parts.append("token=\(LogEscape.escaped(String(token.prefix(8))))…") }
        return parts.joined(separator: " ")
    }
}
