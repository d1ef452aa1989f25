import ArgumentParser
import FoundationEssentials
import NIOCore
import PushJob
import PushQueue
import Redis
import Telemetry

struct Results: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Show recent delivery results.",
        discussion: """
            Workers keep results only with `results: all` or `results: failures` (APNS_WORKER_RESULTS). Device tokens are \
            shortened, except in JSON.
            """)

    @OptionGroup(title: "Queue") var queue: QueueOptions

    @Option(help: "Only results of the job with this ID.") var id: String?
    @Option(
        help:
            "Only this outcome: delivered, invalid_token, suppressed, dead, expired or dropped. Repeatable.")
    var outcome: [String] = []
    @Option(help: "Only results of this period, such as 10m or 1h30m.") var since: String?
    @Flag(help: "Continue with new results until interrupted.") var follow = false
    @Flag(help: "Print one JSON object per line.") var json = false

    private static let page = 1000

    func validate() throws {
        if let since, JobDuration.seconds(since) == nil {
            throw ValidationError("--since is a duration such as 45s, 30m, 1h30m or 7d, not \(since)")
        }
        let known = Outcome.allCases.map(\.rawValue)
        if let unknown = outcome.first(where: { !known.contains($0) }) {
            throw ValidationError("--outcome is one of \(known.joined(separator: ", ")), not \(unknown)")
        }
    }

    func run() async throws {
        try await queue.withClient { client, keys in
            var last = try await start(client)
            var (seen, shown) = (0, 0)
            while true {
                let results = try await StoredResult.read(after: last, count: Self.page, client, keys)
                last = results.last?.entry ?? last
                seen += results.count
                let lines = results.filter(isWanted).map(line)
                shown += lines.count
                if !lines.isEmpty { Terminal.say(lines.joined()) }
                guard results.isEmpty else { continue }
                guard follow else { break }
                try await StoredResult.wait(after: last, milliseconds: 5000, client, keys)
            }
            if shown == 0 {
                Terminal.tell(
                    seen > 0
                        ? "no results match (\(seen) searched in queue \(keys.queue))\n"
                        : "queue \(keys.queue) has no results; workers keep them with `results: all` or `failures`\n")
            }
        }
    }

    /// The entry behind which to begin.
    private func start(_ client: RedisClient) async throws -> String {
        guard let since, let seconds = JobDuration.seconds(since) else { return StoredResult.beginning }
        // Entries are named by Redis' clock.
        let time = try await client.call(RedisCommand("TIME")).root
        guard let now = time[0].string.flatMap({ Int64($0) }) else { return StoredResult.beginning }
        return "\(max(0, (now - seconds) * 1000))-0"
    }

    private func isWanted(_ result: StoredResult) -> Bool {
        if let id, result["id"] != id { return false }
        return outcome.isEmpty || result["outcome"].map(outcome.contains) ?? false
    }

    private func line(_ result: StoredResult) -> String { (json ? jsonLine(result) : textLine(result)) + "\n" }

    private func textLine(_ result: StoredResult) -> String {
        let time = result["time"].flatMap { Int64($0) }.map { LogTime(milliseconds: $0).text } ?? result.entry
        var parts = [time, result["outcome"] ?? "?"]
        if let reason = result["reason"] { parts.append(LogEscape.escaped(reason)) }
        for name in ["status", "app", "id", "attempt", "apns_id", "apns_unique_id", "trace_id"] {
            if let value = result[name] { parts.append("\(name)=\(LogEscape.escaped(value))") }
        }
        if let token = result["token"] { parts.append("token=\(LogEscape.escaped(String(token.prefix(8))))…") }
        return parts.joined(separator: " ")
    }

    private func jsonLine(_ result: StoredResult) -> String {
        var json = ByteBuffer(string: "{\"entry\":")
        json.writeJSONString(result.entry)
        for (name, value) in result.fields where value.readableBytes > 0 {
            json.writeString(",")
            json.writeJSONString(name)
            json.writeString(":")
            let isNumber = ["status", "attempt", "time"].contains(name) && Int(String(buffer: value)) != nil
            if isNumber { json.writeImmutableBuffer(value) } else { json.writeJSONString(value) }
        }
        json.writeString("}")
        return String(buffer: json)
    }
}
