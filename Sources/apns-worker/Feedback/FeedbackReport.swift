import NIOCore
import Operations
import PushQueue
import Synchronization

/// The outputs for records besides Redis.
struct FeedbackOutputs: Sendable {
    /// Standard output, for `--list`.
    var list: LineOutput?
    var command: ExecCommand?

    /// True if there is any output.
    var isWanted: Bool { list != nil || command != nil }

    /// Writes records to all outputs. A slow output does not delay the other outputs.
    func write(_ lines: ByteBuffer, count: Int) async {
        async let listed: Void? = list?.write(lines, count: count)
        async let handed: Void? = command?.write(lines, count: count)
        _ = await (listed, handed)
    }
}

/// The number of records read so far, for all apps.
final class FeedbackProgress: Sendable {
    private let count = Atomic(0)

    var records: Int { count.load(ordering: .relaxed) }

    func add(_ records: Int) { count.add(records, ordering: .relaxed) }
}

/// The result of reading one app's feedback service.
struct FeedbackReport: Encodable, Sendable {
    let app: String
    var topic: String?
    var environment: String?
    var endpoint: String?
    /// The number of complete tuples read.
    var records = 0
    var added = 0
    var known = 0
    var registeredSince = 0
    /// The number of records that Redis did not accept.
    var spilled = 0
    /// The number of bytes of an incomplete tuple.
    var incompleteBytes = 0
    /// The number of tuples without a token.
    var withoutToken = 0
    var seconds = 0.0
    /// The reason why the service was not read to its end, or not all records were written.
    var error: String?

    /// Counts the result for a record; `nil` if Redis did not accept it.
    mutating func count(_ marking: InvalidToken.Marking?) {
        switch marking {
        case .added: added += 1
        case .known: known += 1
        case .registeredSince: registeredSince += 1
        case nil: spilled += 1
        }
    }

    mutating func ended(after time: Duration) {
        let parts = time.components
        seconds = Double(parts.seconds * 1000 + parts.attoseconds / 1_000_000_000_000_000) / 1000
    }

    /// The result as a line of text.
    var line: String {
        var parts = ["\(added) added", "\(known) already known"]
        if registeredSince > 0 { parts.append("\(registeredSince) skipped, registered since") }
        if spilled > 0 { parts.append("\(spilled) NOT WRITTEN to Redis") }
        if withoutToken > 0 { parts.append("\(withoutToken) without a token") }
        if incompleteBytes > 0 { parts.append("\(incompleteBytes) bytes of an incomplete record") }
        return "\(app): \(records == 1 ? "1 record" : "\(records) records"): \(parts.joined(separator: ", ")); "
            + "\(seconds) s"
    }

    /// True if there is something to report even in quiet mode.
    var isEventful: Bool { records > 0 || error != nil || incompleteBytes > 0 || withoutToken > 0 }
}

/// The result of reading all apps' feedback services.
struct FeedbackRoundReport: Sendable {
    var apps: [FeedbackReport]
    /// The result of the program that received the records.
    var exec: ExecCommand.Ending?
    /// The error of standard output, if any.
    var listError: String?

    var isGood: Bool { apps.allSatisfy { $0.error == nil } && exec?.error == nil && listError == nil }

    func json() throws -> String {
        struct Object: Encodable {
            let apps: [FeedbackReport]
            let exec: ExecCommand.Ending?
            let listError: String?
            let ok: Bool
        }
        return try JSONLine.text(
            Object(apps: apps, exec: exec, listError: listError, ok: isGood), keys: .convertToSnakeCase)
    }
}
