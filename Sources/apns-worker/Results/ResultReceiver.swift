import FoundationEssentials
import NIOCore
import Operations
import PushQueue

/// Results of one queue that are handed over together.
struct ResultBatch: Sendable {
    let queue: String
    let results: [StoredResult]

    /// The results as lines of JSON.
    var lines: ByteBuffer {
        var lines = ByteBuffer()
        for result in results {
            ResultLine(queue: queue, result: result).writeJSON(to: &lines)
            lines.writeString("\n")
        }
        return lines
    }

    /// The results as one JSON object: `{"results":[…]}`.
    var document: ByteBuffer {
        var json = ByteBuffer(string: "{\"results\":[")
        for (index, result) in results.enumerated() {
            if index > 0 { json.writeString(",") }
            ResultLine(queue: queue, result: result).writeJSON(to: &json)
        }
        json.writeString("]}")
        return json
    }
}

/// The response of a receiver to a batch.
enum ResultReception: Sendable, Equatable {
    /// The receiver has the results.
    case accepted
    /// The receiver will never accept these results.
    case refused(String)
    /// The receiver could not process the results now. `retryAfter` is the pause that it requested, in milliseconds.
    case failed(String, retryAfter: Int64? = nil)
    /// The receiver could not be reached or processes no results now, so each of the given results may or may not have been processed.
    case unavailable(String, retryAfter: Int64? = nil)
    /// The receiver has ended, or refuses all results.
    case closed(String)

    var isRefusal: Bool { if case .refused = self { true } else { false } }

    /// The pause that the receiver requested, in milliseconds.
    var retryAfter: Int64? {
        switch self {
        case .failed(_, let retryAfter), .unavailable(_, let retryAfter): retryAfter
        case .accepted, .refused, .closed: nil
        }
    }

    /// The problem, in words that never include the contents of results.
    var problem: String? {
        switch self {
        case .accepted: nil
        case .refused(let problem), .failed(let problem, _), .unavailable(let problem, _), .closed(let problem): problem
        }
    }
}

/// An external receiver of results.
protocol ResultReceiver: Sendable, CustomStringConvertible {
    /// Hands over a batch. A batch may be repeated, completely or in parts.
    func hand(over batch: ResultBatch) async -> ResultReception
}

/// A shell command that reads results on standard input and accepts them by exiting with 0. It is started for each batch.
struct CommandReceiver: ResultReceiver {
    let command: String
    /// Variables that the command inherits in addition to ``ExecCommand/inherited``.
    let variables: [String]
    /// The maximum time for which the command reads nothing, and for which it runs after its input was closed.
    let patience: Duration
    let stop: StopSignal

    var description: String { "the command of --exec" }

    func hand(over batch: ResultBatch) async -> ResultReception {
        let process = ExecCommand(command, variables: variables, patience: patience, stop: stop)
        await process.write(batch.lines, count: batch.results.count)
        guard let end = await process.finish() else { return .unavailable("it did not start") }
        // A command that succeeds without reading everything has what it needs.
        if end.status == 0 { return .accepted }
        return .failed(end.error ?? "it failed")
    }
}
