import APNS
import FoundationEssentials
import Glibc
import NIOCore
import PushQueue

/// Writes records that Redis did not accept, and that were stored as lines of JSON, to Redis.
struct FeedbackFile {
    /// The members of a line of `--spill` that are needed.
    private struct Record: Decodable {
        let token: String
        let at: Int64
        let app: String
        let topic: String
        let environment: String?
    }

    private let path: String
    private let context: FeedbackDrain.Context
    private var writing: RetryingTokenWriter
    private var report: FeedbackReport

    /// - Parameter path: a file, or `-` for standard input.
    init(_ path: String, _ context: FeedbackDrain.Context) {
        self.path = path
        self.context = context
        writing = RetryingTokenWriter(context.writer, limit: context.redisPatience, stop: context.stop, name: path)
        report = FeedbackReport(app: path)
    }

    mutating func run() async -> FeedbackReport {
        let began = ContinuousClock.now
        do {
            try await writing.waitUntilReady()
            try await writeAll()
        } catch {
            report.error = "\(error)"
        }
        report.ended(after: ContinuousClock.now - began)
        return report
    }

    private struct Failure: Error, CustomStringConvertible { let description: String }

    private mutating func writeAll() async throws {
        let descriptor = try LineReader.open(path)
        let hasOpenEnd = Self.hasOpenEnd(descriptor)
        let lines = LineReader(descriptor: descriptor)
        let decoder = JSONDecoder()
        var (number, refused): (Int, [Int]) = (0, [])
        var records: [(token: InvalidToken, app: String)] = []
        var lastLine = Data()
        while let line = lines.next({ Data($0) }) {
            number += 1
            lastLine = line
            // In a file of captured standard error, other lines can be between them.
            guard line.first == UInt8(ascii: "{") else { continue }
            guard let record = Self.token(line, decoder) else {
                refused.append(number)
                continue
            }
            records.append(record)
            if records.count == context.batch { try await write(&records, before: number) }
        }
        try await write(&records, before: number)
        if hasOpenEnd, refused.last == number, lastLine.last != UInt8(ascii: "}") {
            refused.removeLast()
            Terminal.note(
                "\(path): line \(number) is incomplete: the process ended while it wrote it, and that record is lost\n"
            )
        }
        guard let first = refused.first else { return }
        throw Failure(
            description: "\(refused.count) lines are not records and were skipped; the first is line \(first)")
    }

    /// True for a file whose last line has no line feed.
    private static func hasOpenEnd(_ descriptor: Int32) -> Bool {
        var status = stat()
        var last: UInt8 = 0
        return fstat(descriptor, &status) == 0 && status.st_mode & S_IFMT == S_IFREG && status.st_size > 0
            && pread(descriptor, &last, 1, status.st_size - 1) == 1 && last != UInt8(ascii: "\n")
    }

    private mutating func write(_ records: inout [(token: InvalidToken, app: String)], before line: Int) async throws {
        guard !records.isEmpty else { return }
        guard !context.stop.isStopped, let markings = await writing.write(records.map(\.token)) else {
            throw Failure(
                description:
                    "\(writing.givenUp ?? "this process was asked to stop"); lines up to \(line) were written only in "
                    + "part, later lines not at all; keep the file and repeat the command")
        }
        report.records += markings.count
        for marking in markings { report.count(marking) }
        if context.outputs.isWanted {
            await context.outputs.write(InvalidToken.lines(records, markings), count: records.count)
        }
        records = []
    }

    private static func token(_ line: Data, _ decoder: JSONDecoder) -> (token: InvalidToken, app: String)? {
        do {
            let record = try decoder.decode(Record.self, from: line)
            let token = InvalidToken(
                token: try DeviceToken(record.token).hex, at: record.at, reason: "Feedback",
                topic: ByteBuffer(string: record.topic), environment: record.environment, source: .feedback)
            return (token, record.app)
        } catch {
            // The error may quote the record, so only the line number is reported.
            return nil
        }
    }
}
