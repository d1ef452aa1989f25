import FoundationEssentials
import Operations
import PushQueue

/// The result of one app's feedback.
struct FeedbackReport: Encodable, Sendable {
    let app: String
    var topic: String?
    var environment: String?
    var endpoint: String?
    /// Whole tuples that were read.
    var records = 0
    var added = 0
    var known = 0
    var registeredSince = 0
    /// Those that Redis did not take.
    var spilled = 0
    /// Bytes of a tuple that did not come whole.
    var incompleteBytes = 0
    var seconds = 0.0
    /// Why the service was not read to its end, or not all of it was written.
    var error: String?

    enum CodingKeys: String, CodingKey {
        case app, topic, environment, endpoint, records, added, known, spilled, seconds, error
        case registeredSince = "registered_since"
        case incompleteBytes = "incomplete_bytes"
    }

    /// Counts what became of a record; `nil` for one that Redis did not take.
    mutating func count(_ marking: InvalidTokenSet.Marking?) {
        switch marking {
        case .added: added += 1
        case .known: known += 1
        case .registeredSince: registeredSince += 1
        case nil: spilled += 1
        }
    }

    mutating func took(_ time: Duration) {
        let parts = time.components
        seconds = Double(parts.seconds) + Double(parts.attoseconds / 1_000_000_000_000_000) / 1000
    }

    /// For people.
    var line: String {
        var parts = ["\(added) added", "\(known) known already"]
        if registeredSince > 0 { parts.append("\(registeredSince) left out, registered since") }
        if spilled > 0 { parts.append("\(spilled) NOT WRITTEN to Redis") }
        if incompleteBytes > 0 { parts.append("\(incompleteBytes) bytes of an incomplete one") }
        return "\(app): \(records == 1 ? "1 record" : "\(records) records"): \(parts.joined(separator: ", ")); "
            + "\(seconds) s"
    }

    /// True if there is anything to tell to somebody who wants quiet.
    var isEventful: Bool { records > 0 || error != nil || incompleteBytes > 0 }
}

/// The result of all apps' feedback.
struct FeedbackRoundReport: Encodable, Sendable {
    var apps: [FeedbackReport]
    /// The result of the program that got the records.
    var exec: ExecCommand.Ending?
    /// The error of standard output.
    var listError: String?

    var isGood: Bool { apps.allSatisfy { $0.error == nil } && exec?.error == nil && listError == nil }

    enum CodingKeys: String, CodingKey {
        case apps, exec, ok
        case listError = "list_error"
    }

    func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: CodingKeys.self)
        try container.encode(apps, forKey: .apps)
        try container.encodeIfPresent(exec, forKey: .exec)
        try container.encodeIfPresent(listError, forKey: .listError)
        try container.encode(isGood, forKey: .ok)
    }

    func json() throws -> String { try JSONLine.text(self) }
}
