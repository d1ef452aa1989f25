import ArgumentParser
import FoundationEssentials
import Glibc
import Operations
import PrintableText
import PushJob
import PushWorker
import Redis

/// Counts the jobs of a list or a file that would be sent, sent differently, or not sent (`check --jobs-from`). Changes nothing.
final class JobsFrom {
    /// The number of jobs that are read from Redis with one command.
    private static let page = 100

    private let source: String
    private let check: JobCheck
    private var survey = JobSurvey()

    /// - Parameter source: a file, `-`, or a key.
    init(_ source: String, _ check: JobCheck) {
        self.source = source
        self.check = check
    }

    /// Reads all jobs.
    /// - Parameter usesRedis: false with `--no-redis`, so that the source must be a file.
    func read(_ settings: Settings, usesRedis: Bool) async throws -> JobSurvey {
        Interruption.watch()
        if source == "-" || !usesRedis || access(source, F_OK) == 0 {
            try readFile()
        } else {
            try await CommandRedis(settings).withClient(for: source) { try await self.readKeys($0) }
        }
        return survey
    }

    /// The current time in milliseconds since 1970.
    private var now: Int64 { Int64(Date().timeIntervalSince1970 * 1000) }

    // MARK: A file

    private func readFile() throws {
        let descriptor: Int32
        do { descriptor = try LineReader.open(source) } catch { throw ValidationError("--jobs-from \(error)") }
        var lines = JobLines(LineReader(descriptor: descriptor))
        while !Interruption.isRequested, let (text, line) = lines.next() {
            survey.add(check.forecast(text, now: now), at: "line \(line)")
        }
    }

    // MARK: Redis

    private func readKeys(_ client: RedisClient) async throws {
        switch try await client.call(RedisCommand("TYPE", source)).root.string ?? "none" {
        case "list": try await readPages(client, count: "LLEN", range: "LRANGE", unit: "index")
        case "zset": try await readPages(client, count: "ZCARD", range: "ZRANGE", unit: "rank")
        case "none":
            throw CommandFailure(
                .attention,
                "\(source) is neither a file nor a key in Redis; a list without jobs does not exist in Redis")
        case let type:
            throw CommandFailure(
                .attention, "the key \(source) holds a \(type); jobs are read from a list or a sorted set")
        }
    }

    /// Reads a list, or a sorted set. If jobs are added or removed at the left in the meantime, other jobs shift, and are counted twice or
    /// not at all.
    private func readPages(_ client: RedisClient, count: String, range: String, unit: String) async throws {
        let length = try await client.call(RedisCommand(count, source)).root.integer ?? 0
        for start in stride(from: 0, to: length, by: Self.page) where !Interruption.isRequested {
            let end = start + Self.page - 1
            let reply = try await client.call(RedisCommand(range, source, "\(start)", "\(end)"))
            for (offset, entry) in reply.root.children.compactMap(\.bytes).enumerated() {
                survey.add(check.forecast(entry, now: now), at: "\(unit) \(start + offset)")
            }
        }
    }
}

/// Prints a survey as a table or as JSON.
struct SurveyReport {
    let survey: JobSurvey
    let source: String

    /// The end of a sentence such as "5 would be sent differently".
    private static func words(_ effect: JobForecast.Effect) -> String {
        switch effect {
        case .notSent: "not sent"
        case .different: "sent differently"
        }
    }

    func print(asJSON isJSON: Bool) throws {
        let rows = survey.rows
        if isJSON {
            try printJSON(rows)
            return
        }
        let from = source == "-" ? "standard input" : source
        let parts = [
            "\(Words.number(survey.sent)) would be sent",
            "\(Words.number(survey.different)) would be sent differently",
            "\(Words.number(survey.notSent)) would not be sent",
        ]
        Terminal.print(
            "\(Words.count(survey.jobs, "job")) from \(from.printable): \(parts.joined(separator: ", "))\n"
                + "\(Words.count(survey.notifications, "notification")) would be sent\n")
        guard !rows.isEmpty else { return }
        let titles = ["JOBS", "WOULD BE", "REASON", "FIRST", "EXAMPLE"]
        let cells = rows.map { row in
            [Words.number(row.jobs), Self.words(row.effect), row.reason, row.example, row.detail.printable]
        }
        let table = Table(titles, cells)
        Terminal.print("\n")
        for line in [titles] + cells { Terminal.print(table.line(line) + "\n") }
        if survey.otherFindings > 0 {
            Terminal.print("and \(Words.count(survey.otherFindings, "finding")) of other kinds\n")
        }
    }

    private func printJSON(_ rows: [JobSurvey.Row]) throws {
        struct Total: Encodable {
            let from: String
            let jobs, sent, sentDifferently, notSent, notifications, otherFindings: Int
        }
        let total = Total(
            from: source, jobs: survey.jobs, sent: survey.sent, sentDifferently: survey.different,
            notSent: survey.notSent, notifications: survey.notifications, otherFindings: survey.otherFindings)
        Terminal.print(try JSONLine.text(total, keys: .convertToSnakeCase) + "\n")
        for row in rows { Terminal.print(try JSONLine.text(row) + "\n") }
    }
}
