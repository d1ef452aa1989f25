import ArgumentParser
import FoundationEssentials
import Glibc
import NIOCore
import Operations
import PrintableText
import PushJob
import PushWorker
import Redis

/// Reads the jobs of a list or a file, changing nothing, and counts what would happen to them (`check --jobs-from`).
final class JobsFrom {
    /// The number of jobs that are read from Redis with one command.
    private static let page = 100

    private let source: String
    private let isRpush: Bool
    private let check: JobCheck
    private var survey = JobSurvey()
    /// The `bundle_id` of rpush's apps by their keys, and the keys of apps without one.
    private var topics: [String: String?] = [:]

    /// - Parameters:
    ///   - source: a file, `-`, a key, or a pattern of keys of rpush's notifications.
    ///   - isRpush: true for notifications of rpush.
    init(_ source: String, isRpush: Bool, _ check: JobCheck) {
        self.source = source
        self.isRpush = isRpush
        self.check = check
    }

    /// Reads all jobs.
    /// - Parameter usesRedis: false with `--no-redis`, so that the source must be a file.
    func read(_ settings: Settings, usesRedis: Bool) async throws -> JobSurvey {
        Interruption.watch()
        if source == "-" || !usesRedis || access(source, F_OK) == 0 {
            try readFile()
        } else {
            if isRpush, case .cluster = try RedisSettings(settings).topology() {
                throw ValidationError("rpush does not work with a Redis Cluster; give the address of one server")
            }
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
            guard isRpush else {
                survey.add(check.forecast(text, now: now), at: "line \(line)")
                continue
            }
            do throws(RpushNotification.Unreadable) {
                survey.add(try RpushNotification(row: text).forecast(by: check, now: now), at: "line \(line)")
            } catch {
                survey.add(error.forecast, at: "line \(line)")
            }
        }
    }

    // MARK: Redis

    private func readKeys(_ client: RedisClient) async throws {
        if isRpush, source.contains("*") { return try await readPattern(client) }
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

    /// Reads a list, or a sorted set. Jobs that are added or removed at the left in the meantime shift the others, so
    /// that some are counted twice or not at all.
    private func readPages(_ client: RedisClient, count: String, range: String, unit: String) async throws {
        let length = try await client.call(RedisCommand(count, source)).root.integer ?? 0
        for start in stride(from: 0, to: length, by: Self.page) where !Interruption.isRequested {
            let end = start + Self.page - 1
            let reply = try await client.call(RedisCommand(range, source, "\(start)", "\(end)"))
            let entries = reply.root.children.compactMap(\.bytes)
            if isRpush {
                let notifications = source.withoutLastPart
                try await readNotifications(entries.map { "\(notifications):\(String(buffer: $0))" }, client)
                continue
            }
            for (offset, entry) in entries.enumerated() {
                survey.add(check.forecast(entry, now: now), at: "\(unit) \(start + offset)")
            }
        }
    }

    // MARK: rpush

    /// Reads the notifications whose keys match a pattern.
    private func readPattern(_ client: RedisClient) async throws {
        var cursor = "0"
        // SCAN can return a key more than once.
        var seen: Set<String> = []
        repeat {
            let reply = try await client.call(RedisCommand("SCAN", cursor, "MATCH", source, "COUNT", "\(Self.page)"))
            guard reply.root.count == 2 else { throw CommandFailure(.attention, "unexpected reply to SCAN") }
            cursor = reply.root[0].string ?? "0"
            let keys = reply.root[1].children.compactMap(\.string).filter { key in
                let id = key.dropFirst(key.withoutLastPart.utf8.count + 1)
                return !id.isEmpty && id.allSatisfy { ("0"..."9").contains($0) } && seen.insert(key).inserted
            }
            try await readNotifications(keys, client)
        } while cursor != "0" && !Interruption.isRequested
        if survey.jobs == 0, !Interruption.isRequested {
            throw CommandFailure(.attention, "no key in Redis matches \(source)")
        }
    }

    private func readNotifications(_ keys: [String], _ client: RedisClient) async throws {
        let replies = try await client.call(keys.map { RedisCommand("HGETALL", $0) })
        for (key, reply) in zip(keys, replies) {
            let id = key.dropFirst(key.withoutLastPart.utf8.count + 1)
            guard let reply, reply.root.count > 0 else {
                survey.add(.missing, at: "id \(id)")
                continue
            }
            let parts = Array(reply.root.children)
            let hash = stride(from: 0, to: parts.count - 1, by: 2).map { index in
                (name: parts[index].string ?? "", value: parts[index + 1].bytes ?? ByteBuffer())
            }
            let notification: RpushNotification
            do throws(RpushNotification.Unreadable) { notification = try RpushNotification(hash: hash) } catch {
                survey.add(error.forecast, at: "id \(id)")
                continue
            }
            let topic = try await topic(of: notification, key, client)
            survey.add(notification.forecast(by: check, topic: topic, now: now), at: "id \(id)")
        }
    }

    /// Returns the `bundle_id` of a notification's app. Only this field is read, because others are secrets.
    private func topic(of notification: RpushNotification, _ key: String, _ client: RedisClient) async throws -> String?
    {
        guard let id = notification.appID else { return nil }
        let apps = key.withoutLastPart.withoutLastPart
        let app = (apps.isEmpty ? "apps:" : "\(apps):apps:") + id
        if let known = topics[app] { return known }
        let value = try await client.call(RedisCommand("HGET", app, "bundle_id")).root.bytes
        let topic = value.flatMap(RpushNotification.text(ofField:))
        topics[app] = .some(topic)
        return topic
    }
}

extension String {
    /// The text before the last colon; empty if there is none.
    fileprivate var withoutLastPart: String { lastIndex(of: ":").map { String(self[..<$0]) } ?? "" }
}

/// Prints a survey as a table or as JSON.
struct SurveyReport {
    let survey: JobSurvey
    let source: String

    /// The words for an effect, as a sentence continues after "would be".
    private static func words(_ effect: JobForecast.Effect) -> String {
        switch effect {
        case .notSent: "not sent"
        case .different: "sent differently"
        case .skipped: "skipped"
        }
    }

    func print(asJSON isJSON: Bool) throws {
        let rows = survey.rows
        if isJSON {
            try printJSON(rows)
            return
        }
        let from = source == "-" ? "standard input" : source
        var parts = [
            "\(Words.number(survey.sent)) would be sent",
            "\(Words.number(survey.different)) would be sent differently",
            "\(Words.number(survey.notSent)) would not be sent",
        ]
        if survey.skipped > 0 { parts.append("\(Words.number(survey.skipped)) would be skipped") }
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
            let jobs, sent, sentDifferently, notSent, skipped, notifications, otherFindings: Int
        }
        let total = Total(
            from: source, jobs: survey.jobs, sent: survey.sent, sentDifferently: survey.different,
            notSent: survey.notSent, skipped: survey.skipped, notifications: survey.notifications,
            otherFindings: survey.otherFindings)
        Terminal.print(try JSONLine.text(total, keys: .convertToSnakeCase) + "\n")
        for row in rows { Terminal.print(try JSONLine.text(row) + "\n") }
    }
}
