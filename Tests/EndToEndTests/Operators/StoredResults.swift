import Foundation
import TestSupport
import Testing

/// Returns the results of a queue as `docs/results.md` defines them: a dictionary for each. Numbers and labels are texts of JSON.
func storedResults(_ redis: RedisServer, queue: String = "default") throws -> [[String: String]] {
    try redis.connect().run("XRANGE", "push:{\(queue)}:results", "-", "+").list().flatMap { entry in
        let text = try #require(try entry.list()[1].pairs()["results"])
        let groups = try #require(try JSONSerialization.jsonObject(with: Data(text.utf8)) as? [[String: Any]])
        return try groups.flatMap { group in
            let notifications = try #require(group["notifications"] as? [[String: Any]])
            let shared = group.filter { $0.key != "notifications" }
            return try notifications.map { try shared.merging($0) { $1 }.mapValues(memberText) }
        }
    }
}

private func memberText(_ value: Any) throws -> String {
    if let text = value as? String { return text }
    if let number = value as? Int { return "\(number)" }
    return String(decoding: try JSONSerialization.data(withJSONObject: value, options: .sortedKeys), as: UTF8.self)
}
