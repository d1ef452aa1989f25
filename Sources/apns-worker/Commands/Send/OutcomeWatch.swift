import ArgumentParser
import NIOCore
import Operations
import PrintableText
import PushQueue
import Redis

/// Follows a job to its outcome through the results of its queue.
struct OutcomeWatch {
    private let id: String
    private let notifications: Int
    /// The time limit in milliseconds.
    private let limit: Int
    private let client: RedisClient
    private let keys: QueueKeys
    private let began = ContinuousClock.now
    /// The ID of the last entry read.
    private var position: String

    /// Records the current position. Must be called before the job is pushed, so that no result is missed.
    /// - Parameter notifications: the number of results to wait for.
    /// - Throws: `RedisError`.
    init(
        of id: String, notifications: Int, within limit: Int, _ client: RedisClient, _ keys: QueueKeys
    ) async throws {
        self.id = id
        self.notifications = notifications
        self.limit = limit
        self.client = client
        self.keys = keys
        let newest = try await ResultPage.read(from: "+", to: "-", newestFirst: true, count: 1, client, keys)
        position = newest.entries.first ?? StoredResult.beginning
    }

    /// Prints the outcome of each notification, or the state of the queue after the time limit.
    /// - Returns: true if all were delivered.
    /// - Throws: `RedisError`.
    mutating func follow(isJSON: Bool) async throws -> Bool {
        var (ended, areDelivered, page) = (0, true, ResultPage?.none)
        while ended < notifications {
            let left = limit - milliseconds
            guard left > 0 else {
                try await reportNothing(ended)
                return false
            }
            let next = try await ResultPage.read(
                from: "(\(position)", to: "+", count: ResultPage.size(for: 500, after: page), client, keys)
            position = next.entries.last ?? position
            page = next
            for result in next.results where result["id"] == id {
                // A result without a token concerns the whole job.
                ended += result["token"] == nil ? notifications : 1
                if result["outcome"] != Outcome.delivered.rawValue { areDelivered = false }
                print(result, isJSON)
            }
            if next.entries.isEmpty {
                try await StoredResult.wait(after: position, milliseconds: min(left, 1000), client, keys)
            }
        }
        return areDelivered
    }

    private var milliseconds: Int { Int((ContinuousClock.now - began) / .milliseconds(1)) }

    private func print(_ result: StoredResult, _ isJSON: Bool) {
        if isJSON {
            var json = ByteBuffer()
            ResultLine(queue: keys.queue, result: result).writeJSON(to: &json)
            Terminal.print(String(buffer: json) + "\n")
            return
        }
        let outcome = result["outcome"] ?? "?"
        let isDelivered = outcome == Outcome.delivered.rawValue
        let device = notifications > 1 ? result["token"].map { "\($0.prefix(8))…: " } ?? "" : ""
        let facts = [
            isDelivered ? nil : result["status"].map { "status \($0)" }, result["attempt"].map { "attempt \($0)" },
            result["apns_id"].map { "apns-id \($0)" },
        ].compactMap { $0 }.joined(separator: ", ")
        let reason = result["reason"].map { ": \($0)" } ?? ""
        let line =
            "\(device)\(outcome) \(isDelivered ? "in" : "after") \(Words.duration(Int64(milliseconds)))\(reason) (\(facts))"
        Terminal.print(line.printable + "\n")
    }

    private func reportNothing(_ ended: Int) async throws {
        let overview = try await QueueOverview.read(client, keys)
        let waiting = Words.number(overview.waiting + overview.due)
        let missing = notifications > 1 ? " for \(notifications - ended) of \(notifications) notifications" : ""
        var text =
            "no outcome of job \(id.printable) within \(Words.duration(Int64(limit)))\(missing): queue \(keys.queue) has "
        text +=
            "\(waiting) waiting, \(Words.number(overview.claims)) claimed and \(Words.number(overview.later)) later jobs"
        if let pause = overview.pause { text += "; it is paused: \(pause.inWords.printable)" }
        if !overview.workers.contains(where: \.isLiving) { text += "; no worker claims jobs from it" }
        Terminal.note(text + "\n")
    }
}
