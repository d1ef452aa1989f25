import FoundationEssentials
import NIOCore
import Operations
import PushQueue

/// Results of one queue that are handed over together.
struct ResultBatch: Sendable {
    let queue: String
    let results: [StoredResult]

    /// A line of JSON for each result.
    var lines: ByteBuffer {
        var lines = ByteBuffer()
        for result in results {
            ResultLine(queue: queue, result: result).writeJSON(to: &lines)
            lines.writeString("\n")
        }
        return lines
    }

    /// One JSON object: `{"results":[…]}`.
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
    /// It has the results.
    case accepted
    /// It does not want these results, whenever they come.
    case refused(String)
    /// It could not deal with them now. `retryAfter` is its own wish, in milliseconds.
    case failed(String, retryAfter: Int64? = nil)
    /// It could not be reached, so nothing is known about these results.
    case unreachable(String)

    /// The milliseconds to wait before the next try: the receiver's own wish, if that is longer.
    func pause(minimum milliseconds: Int64) -> Int64 {
        if case .failed(_, let retryAfter?) = self { max(milliseconds, retryAfter) } else { milliseconds }
    }

    /// The problem, in words without the contents of results.
    var problem: String? {
        switch self {
        case .accepted: nil
        case .refused(let problem), .failed(let problem, _), .unreachable(let problem): problem
        }
    }
}

/// A part of the outside world that results are handed to.
protocol ResultReceiver: Sendable, CustomStringConvertible {
    /// Hands over a batch. Batches may come again, whole or in parts.
    func hand(over batch: ResultBatch) async -> ResultReception
}

/// A shell command that reads results on standard input, and accepts them by ending with 0. It is started for each batch.
struct CommandReceiver: ResultReceiver {
    let command: String
    /// Variables that it inherits in addition to those of every command.
    let variables: [String]
    /// The maximum time in which it reads nothing, and then in which it ends.
    let patience: Duration
    let stop: StopSignal

    var description: String { "the command of --exec" }

    func hand(over batch: ResultBatch) async -> ResultReception {
        let process = ExecCommand(command, variables: variables, patience: patience, stop: stop)
        await process.write(batch.lines, count: batch.results.count)
        guard let end = await process.finish() else { return .unreachable("it did not start") }
        // One that ends well without reading everything has what it wants.
        if end.status == 0 { return .accepted }
        return .failed(end.error ?? "it failed")
    }
}
