import PushQueue
import Redis

/// The parts of an answer that can't be read, because their server is unreachable or a key has the wrong type. The other parts are still
/// shown.
package struct UnreadParts: Sendable {
    private var parts: [(name: String, error: any Error)] = []

    package init() {}

    package var isEmpty: Bool { parts.isEmpty }

    /// The names of the parts, such as `queue news`.
    package var names: [String] { parts.map(\.name) }

    /// A sentence for each part, without a full stop.
    package var notes: [String] { parts.map { "\($0.name) is not included: \($0.error)" } }

    package static func name(of queue: String) -> String { "queue \(queue)" }

    /// Records the first error of each part.
    /// - Throws: the error if it did not occur while reading from Redis.
    package mutating func record(_ error: any Error, of name: String) throws {
        guard error is any RedisFailure else { throw error }
        if !names.contains(name) { parts.append((name, error)) }
    }

    package mutating func add(_ others: UnreadParts) {
        for part in others.parts where !names.contains(part.name) { parts.append(part) }
    }

    /// Reads a queue. If that fails, it records the error and returns `nil`.
    package mutating func read<Value>(_ queue: String, _ body: () async throws -> Value) async throws -> Value? {
        do {
            return try await body()
        } catch {
            try record(error, of: Self.name(of: queue))
            return nil
        }
    }

    /// - Returns: the values of the readable queues.
    /// - Throws: the first error if none could be read.
    package mutating func each<Value>(
        _ queues: [QueueKeys], _ body: (QueueKeys) async throws -> Value
    ) async throws -> [Value] {
        var values: [Value] = []
        for keys in queues {
            if let value = try await read(keys.queue, { try await body(keys) }) { values.append(value) }
        }
        if values.isEmpty { try throwFirst() }
        return values
    }

    /// Throws the first error, if there is one. Called if no part of an answer could be read.
    package func throwFirst() throws {
        if let first = parts.first { throw first.error }
    }
}
