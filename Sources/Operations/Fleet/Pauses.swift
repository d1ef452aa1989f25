import NIOCore
import PushQueue
import Redis

/// The pause of a queue. While it lasts, no worker claims from the queue. Claimed jobs are still sent, unless the pause hands them back.
package enum QueuePause {
    /// Pauses the queue, or replaces its pause. Works on a Redis whose memory is full.
    /// - Parameter pause: the reason, the time and the operator; only ``clear(_:_:)`` ends it.
    /// - Throws: `RedisError`.
    package static func set(_ client: RedisClient, _ keys: QueueKeys, _ pause: PauseRecord) async throws {
        try await QueueScript.set(keys.paused, client) { $0.append(pause.json) }
    }

    /// Ends the pause; workers continue within about a second.
    /// - Returns: true if the queue was paused.
    /// - Throws: `RedisError`.
    package static func clear(_ client: RedisClient, _ keys: QueueKeys) async throws -> Bool {
        try await client.call(RedisCommand("DEL", keys.paused)).root.number == 1
    }

    /// Reads the pause. Its texts are made printable, because any program can write them.
    /// - Returns: `nil` if the queue is not paused.
    /// - Throws: `RedisError`.
    package static func read(_ client: RedisClient, _ keys: QueueKeys) async throws -> PauseRecord? {
        try await client.call(RedisCommand("GET", keys.paused)).root.bytes.map { PauseRecord($0) }
    }

    /// Reads the pause before it is replaced or ended. A key of another type counts as no pause.
    static func readAny(_ client: RedisClient, _ keys: QueueKeys) async throws -> PauseRecord? {
        do {
            return try await read(client, keys)
        } catch RedisError.server(let error) where error.prefix == "WRONGTYPE" {
            return nil
        }
    }
}

extension PauseRecord {
    /// True if an operator gave no reason: the reason then names the operator.
    package var isReasonless: Bool { by.map { reason == "by \($0)" } ?? false }

    /// The reason, the beginning, and the operator if the reason does not name the operator.
    package var withOrigin: String {
        let since = since.map { ", since " + Moment.text($0) }
        let by = isReasonless ? nil : by.map { ", by \($0)" }
        return reason + (since ?? "") + (by ?? "")
    }
}

extension PauseRecord: Shown {
    package static let columns = Columns<Self>(
        "Pause", "A pause.",
        [
            .init("reason", "Reason.", \.reason), .init("detail", "Explanation of the reason.", \.detail),
            .init("since", "Beginning.", as: .time, \.since), .init("by", "Operator.", \.by),
        ])
}

extension AppPauses {
    /// Pauses an app until ``end(_:_:_:)``. Works on a Redis whose memory is full.
    /// - Throws: `RedisError`.
    package static func set(
        _ pause: PauseRecord, of app: String, _ client: RedisClient, _ keys: SharedKeys
    ) async throws {
        try await QueueScript.set(keys.appPaused(app), client) { $0.append(pause.json) }
    }

    /// Returns the pauses of some apps, by name, without the apps that are not paused.
    /// - Throws: `RedisError`.
    package static func read(
        _ apps: Set<String>, _ client: RedisClient, _ keys: SharedKeys
    ) async throws -> [String: PauseRecord] {
        guard !apps.isEmpty else { return [:] }
        var command = RedisCommand("MGET", expecting: apps.count, bytes: apps.count * 64)
        for app in apps { command.append(keys.appPaused(app)) }
        let values = try await client.call(command).root.children
        return Dictionary(
            uniqueKeysWithValues: zip(apps, values).compactMap { app, value in
                value.bytes.map { (app, PauseRecord($0)) }
            })
    }

    /// Reads the pause of an app; `nil` if it is not paused.
    /// - Throws: `RedisError`.
    package static func read(_ app: String, _ client: RedisClient, _ keys: SharedKeys) async throws -> PauseRecord? {
        try await read([app], client, keys)[app]
    }

    /// Makes each lane send a probe of an app at once, whatever state it has recorded for the app.
    /// - Throws: `RedisError`.
    package static func sendProbe(of app: String, _ client: RedisClient, _ keys: SharedKeys) async throws {
        var command = RedisCommand("SET", keys.appResumed(app))
        // Lanes notice any value that differs from the previous one.
        command.append("\(UInt64.random(in: 1...UInt64.max))")
        command.append("PX")
        command.append(60_000)
        _ = try await client.call(command)
    }

    /// - Returns: true if it was paused.
    /// - Throws: `RedisError`.
    package static func end(_ app: String, _ client: RedisClient, _ keys: SharedKeys) async throws -> Bool {
        try await client.call(RedisCommand("DEL", keys.appPaused(app))).root.number == 1
    }
}
